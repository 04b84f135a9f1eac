package lua

import (
	"errors"
	"slices"
	"strings"

	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"
)

// Check returns why a script does not load, or nil.
func Check(script string) *Error {
	text, fault := plain(script)
	if fault != nil {
		return fault
	}
	block, err := parse.Parse(strings.NewReader(text), "")
	if err == nil {
		t := &tree{}
		t.function(block, true)
		return t.fault
	}
	last := 1 + strings.Count(strings.TrimRight(text, " \t\r\n"), "\n")
	var e *parse.Error
	switch {
	case !errors.As(err, &e):
		return &Error{last, err.Error()}
	case e.Pos.Line == parse.EOF:
		return &Error{last, "it is no Lua, or ends too early"}
	}
	near := strings.TrimSpace(e.Token)
	if near == "" {
		return &Error{e.Pos.Line, "it is no Lua"}
	}
	return &Error{e.Pos.Line, "it is no Lua near " + strings.ToValidUTF8(near[:min(len(near), 40)], "?")}
}

// deepest is how many blocks, and how many brackets, are taken within one another. LuaJIT takes 200 of both.
const deepest = 190

// tree looks for the first fault of a tree.
type tree struct {
	fault  *Error
	depth  int
	loops  int        // around the statement, within its function
	labels [][]string // of each block around the statement, within its function
	varies bool       // the function takes any number of arguments
}

func (t *tree) bad(n ast.PositionHolder, message string) {
	if t.fault == nil {
		t.fault = &Error{max(n.Line(), 1), message}
	}
}

// function looks at the body of a function, where loops and labels around it do not count.
func (t *tree) function(block []ast.Stmt, varies bool) {
	in := &tree{depth: t.depth, varies: varies, fault: t.fault}
	in.block(block)
	t.fault = in.fault
}

func (t *tree) block(list []ast.Stmt) {
	if t.depth++; t.depth > deepest && len(list) > 0 {
		t.bad(list[0], "blocks are nested too deep")
	}
	var labels []string
	for _, s := range list {
		if l, ok := s.(*ast.LabelStmt); ok {
			if slices.Contains(labels, l.Name) {
				t.bad(l, "label "+l.Name+" is there twice")
			}
			labels = append(labels, l.Name)
		}
	}
	t.labels = append(t.labels, labels)
	for _, s := range list {
		if t.fault == nil {
			t.statement(s)
		}
	}
	t.labels = t.labels[:len(t.labels)-1]
	t.depth--
}

func (t *tree) loop(list []ast.Stmt) {
	t.loops++
	t.block(list)
	t.loops--
}

func (t *tree) statement(s ast.Stmt) {
	switch s := s.(type) {
	case *ast.AssignStmt:
		t.all(s.Lhs)
		t.all(s.Rhs)
	case *ast.LocalAssignStmt:
		t.all(s.Exprs)
	case *ast.FuncCallStmt:
		t.expression(s.Expr)
	case *ast.DoBlockStmt:
		t.block(s.Stmts)
	case *ast.WhileStmt:
		t.expression(s.Condition)
		t.loop(s.Stmts)
	case *ast.RepeatStmt:
		t.loop(s.Stmts)
		t.expression(s.Condition)
	case *ast.IfStmt:
		t.expression(s.Condition)
		t.block(s.Then)
		t.otherwise(s.Else)
	case *ast.NumberForStmt:
		t.all([]ast.Expr{s.Init, s.Limit, s.Step})
		t.loop(s.Stmts)
	case *ast.GenericForStmt:
		t.all(s.Exprs)
		t.loop(s.Stmts)
	case *ast.FuncDefStmt:
		t.expression(s.Func)
	case *ast.ReturnStmt:
		t.all(s.Exprs)
	case *ast.BreakStmt:
		if t.loops == 0 {
			t.bad(s, "break stands in no loop")
		}
	case *ast.GotoStmt:
		t.jump(s)
	}
}

// otherwise looks at the else of an if. An elseif is an if of its own there, and no block within a block.
func (t *tree) otherwise(list []ast.Stmt) {
	if len(list) == 1 {
		if _, ok := list[0].(*ast.IfStmt); ok {
			t.statement(list[0])
			return
		}
	}
	t.block(list)
}

func (t *tree) jump(s *ast.GotoStmt) {
	for _, list := range t.labels {
		if slices.Contains(list, s.Label) {
			return
		}
	}
	t.bad(s, "there is no label "+s.Label+" to go to")
}

func (t *tree) all(list []ast.Expr) {
	for _, e := range list {
		t.expression(e)
	}
}

func (t *tree) expression(e ast.Expr) {
	switch e := e.(type) {
	case *ast.Comma3Expr:
		if !t.varies {
			t.bad(e, "... stands in a function without it among its arguments")
		}
	case *ast.AttrGetExpr:
		t.all([]ast.Expr{e.Object, e.Key})
	case *ast.TableExpr:
		for _, f := range e.Fields {
			t.all([]ast.Expr{f.Key, f.Value})
		}
	case *ast.FuncCallExpr:
		t.all([]ast.Expr{e.Func, e.Receiver})
		t.all(e.Args)
	case *ast.LogicalOpExpr:
		t.all([]ast.Expr{e.Lhs, e.Rhs})
	case *ast.RelationalOpExpr:
		t.all([]ast.Expr{e.Lhs, e.Rhs})
	case *ast.StringConcatOpExpr:
		t.all([]ast.Expr{e.Lhs, e.Rhs})
	case *ast.ArithmeticOpExpr:
		t.all([]ast.Expr{e.Lhs, e.Rhs})
	case *ast.UnaryMinusOpExpr:
		t.expression(e.Expr)
	case *ast.UnaryNotOpExpr:
		t.expression(e.Expr)
	case *ast.UnaryLenOpExpr:
		t.expression(e.Expr)
	case *ast.FunctionExpr:
		t.function(e.Stmts, e.ParList != nil && e.ParList.HasVargs)
	}
}
