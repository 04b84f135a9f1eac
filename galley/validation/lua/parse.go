package lua

import (
	"fmt"
	"strings"
)

// Error is a fault of a script.
type Error struct {
	Line    int // the number of the line, from 1
	Message string
}

func (e *Error) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Message) }

// Check returns why a script does not load, or nil.
func Check(script string) *Error {
	if strings.HasPrefix(script, "\x1b") {
		return &Error{1, "it is bytecode: write the script as text"}
	}
	p := &parser{lexer: newLexer(script), visible: map[string][]variable{}}
	p.advance()
	p.open(true)
	p.begin(false)
	p.chunk()
	if p.token.kind != tokenEnd {
		p.unexpected()
	}
	p.close()
	return p.lexer.fault
}

// parser reads the statements of a script and keeps the account of the function that it is in. After the first fault,
// every token is tokenEnd, so each loop ends.
type parser struct {
	lexer   *lexer
	token   token
	ahead   *token                // the token after token; nil if it was not read
	line    int                   // line of the token before token
	f       *function             // the innermost function
	level   int                   // nested expressions and blocks
	names   int                   // locals, labels and jumps of the functions around and of f
	visible map[string][]variable // locals in scope by name, the innermost last
}

func (p *parser) advance() {
	p.line = p.token.line
	if p.ahead != nil {
		p.token, p.ahead = *p.ahead, nil
		return
	}
	p.token = p.lexer.next()
}

func (p *parser) peek() string {
	if p.ahead == nil {
		t := p.lexer.next()
		p.ahead = &t
	}
	return p.ahead.kind
}

// failAt reports the first fault and ends the script.
func (p *parser) failAt(line int, message string) {
	p.lexer.fail(line, message)
	p.token, p.ahead = p.lexer.end(), nil
}

func (p *parser) refuse(message string) { p.failAt(p.token.line, message) }

// unexpected reports a token that is not allowed at its place.
func (p *parser) unexpected() {
	switch t := p.token; t.kind {
	case tokenEnd:
		p.failAt(p.line, "it is no Lua, or ends too early")
	case tokenName, tokenNumber:
		p.refuse("it is no Lua near " + strings.ToValidUTF8(t.text[:min(len(t.text), 40)], "?"))
	default:
		p.refuse("it is no Lua near " + strings.ToValidUTF8(t.kind, "?"))
	}
}

func (p *parser) accept(kind string) bool {
	if p.token.kind != kind {
		return false
	}
	p.advance()
	return true
}

func (p *parser) expect(kind string) {
	if !p.accept(kind) {
		p.unexpected()
	}
}

func (p *parser) name() string {
	text := p.token.text
	p.expect(tokenName)
	return text
}

// nest enters a level of expressions and blocks.
func (p *parser) nest() {
	if p.level++; p.level >= maxLevels {
		p.refuse("expressions and blocks are nested too deep")
	}
}

func (p *parser) expression() expression {
	e, _ := p.operators(0)
	return e
}

// priorities say how strongly a binary operator binds on its left and on its right side.
var priorities = map[string]struct{ left, right int }{
	"or": {1, 1}, "and": {2, 2},
	"==": {3, 3}, "~=": {3, 3}, "<": {3, 3}, ">": {3, 3}, "<=": {3, 3}, ">=": {3, 3},
	"..": {5, 4}, "+": {6, 6}, "-": {6, 6}, "*": {7, 7}, "/": {7, 7}, "%": {7, 7}, "^": {10, 9},
}

const unaryPriority = 8

// operators reads an expression of operators that bind more strongly than limit, and returns the operator behind it.
func (p *parser) operators(limit int) (e expression, op string) {
	p.nest()
	switch op := p.token.kind; op {
	case "not", "-", "#":
		p.advance()
		e, _ = p.operators(unaryPriority)
		p.f.unary(op, &e)
	default:
		e = p.simple()
	}
	op = p.token.kind
	for {
		bind := priorities[op]
		if bind.left <= limit {
			break
		}
		p.advance()
		p.f.left(op, &e)
		from := p.f.instructions
		b, next := p.operators(bind.right)
		if (op == "and" || op == "or") && p.f.instructions-from > maxJump {
			p.refuse("a condition is too long")
		}
		p.f.binary(op, &e, &b)
		op = next
	}
	p.level--
	return e, op
}

func (p *parser) simple() expression {
	e := expression{}
	switch t := p.token; t.kind {
	case tokenNumber:
		e = expression{kind: constNumber, number: t.value}
	case tokenCData:
		e.kind = constCData
	case tokenString:
		e = expression{kind: constString, text: t.text}
	case "nil":
	case "true":
		e.kind = constTrue
	case "false":
		e.kind = constFalse
	case "...":
		if !p.f.varies {
			p.refuse("... stands in a function without it among its arguments")
		}
		p.f.reserve(1)
		p.f.emit()
		e = expression{kind: call, register: p.f.free - 1, vararg: true}
	case "{":
		return p.table()
	case "function":
		p.advance()
		return p.body(false)
	default:
		return p.primary()
	}
	p.advance()
	return e
}

// primary reads a variable or an expression in parentheses, with all calls and elements of it.
func (p *parser) primary() expression {
	f := p.f
	var e expression
	switch p.token.kind {
	case "(":
		p.advance()
		e = p.expression()
		p.expect(")")
		f.discharge(&e)
	case tokenName:
		e = p.lookup(p.name())
	default:
		p.unexpected()
	}
	for {
		switch p.token.kind {
		case ".":
			p.field(&e)
		case "[":
			f.toAny(&e)
			key := p.bracketed()
			f.index(&e, &key)
		case ":":
			p.advance()
			f.method(&e, p.name())
			p.arguments(&e)
		case "(", tokenString, "{":
			f.toNext(&e)
			f.reserve(1)
			p.arguments(&e)
		default:
			return e
		}
	}
}

func (p *parser) field(e *expression) {
	p.f.toAny(e)
	p.advance()
	key := expression{kind: constString, text: p.name()}
	p.f.index(e, &key)
}

func (p *parser) bracketed() expression {
	p.advance()
	e := p.expression()
	p.f.toValue(&e)
	p.expect("]")
	return e
}

// arguments reads the arguments of a call, whose function is in the register of e.
func (p *parser) arguments(e *expression) {
	f := p.f
	args := expression{kind: nothing}
	switch p.token.kind {
	case "(":
		p.advance()
		if p.token.kind != ")" {
			_, args = p.list()
		}
		p.expect(")")
	case "{":
		args = p.table()
	case tokenString:
		args = expression{kind: constString, text: p.token.text}
		p.advance()
	default:
		p.unexpected()
	}
	if args.kind != call && args.kind != nothing {
		f.toNext(&args)
	}
	f.emit()
	*e = expression{kind: call, register: e.register}
	f.free = e.register + 1
}

// list reads expressions with commas between. It puts all but the last into registers.
func (p *parser) list() (n int, last expression) {
	last = p.expression()
	for n = 1; p.accept(","); n++ {
		p.f.toNext(&last)
		last = p.expression()
	}
	return n, last
}

func (p *parser) table() expression {
	f := p.f
	e := expression{kind: inRegister, register: f.free}
	at, template, position, open := f.emit(), false, 1, false
	f.reserve(1)
	inUse := f.free
	p.expect("{")
	for p.token.kind != "}" {
		var key expression
		open = false
		switch {
		case p.token.kind == "[":
			key = p.bracketed()
			if !key.constant() {
				f.index(&e, &key)
			}
			p.expect("=")
		case p.token.kind == tokenName && p.peek() == "=":
			key = expression{kind: constString, text: p.name()}
			p.expect("=")
		default:
			key = expression{kind: constNumber, number: float64(position)}
			position++
			open = true
		}
		value := p.expression()
		if value.constant() && !value.jumps() && key.constant() && key.kind != constNil {
			if !template {
				template = true
				f.object()
			}
			open = false
		} else {
			if value.kind != call {
				f.toAny(&value)
				open = false
			}
			if key.constant() {
				f.index(&e, &key)
			}
			f.store(&e, &value)
		}
		f.free = inUse
		if !p.accept(",") && !p.accept(";") {
			break
		}
	}
	p.expect("}")
	if open {
		f.numberConstant(float64(uint64(1)<<52 + uint64(position))) //nolint:gosec // counts up from 1
	}
	e.kind = inRegister
	if at == f.instructions-1 {
		f.free--
		e = expression{kind: relocatable}
	}
	return e
}

// body reads the arguments and the statements of a function.
func (p *parser) body(self bool) expression {
	outer := p.f
	p.open(false)
	p.begin(false)
	var names []string
	if self {
		names = append(names, "self")
		p.declare(0)
	}
	p.expect("(")
	for more := p.token.kind != ")"; more; more = p.accept(",") {
		if p.accept("...") {
			p.f.varies = true
			break
		}
		p.declare(len(names))
		names = append(names, p.name())
	}
	p.bind(names...)
	p.f.reserve(len(names))
	p.expect(")")
	p.chunk()
	p.expect("end")
	p.close()
	outer.object()
	outer.emit()
	outer.fixup = outer.fixup || outer.returned && !outer.closures
	outer.closures = true
	return expression{kind: relocatable}
}
