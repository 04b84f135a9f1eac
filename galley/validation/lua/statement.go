package lua

import (
	"slices"

	"github.com/istiod-lite/istiod-lite/api/lists"
)

// ends reports whether a block ends here.
func (p *parser) ends() bool {
	switch p.token.kind {
	case "else", "elseif", "end", "until", tokenEnd:
		return true
	}
	return false
}

func (p *parser) chunk() {
	p.nest()
	for last := false; !last && !p.ends(); {
		last = p.statement()
		p.accept(";")
		p.f.free = len(p.f.locals)
	}
	p.level--
}

func (p *parser) scoped() {
	p.begin(false)
	p.chunk()
	p.finish()
}

// span runs read, and bounds the instructions that it adds: a jump passes over them.
func (p *parser) span(read func()) {
	f, from := p.f, p.f.instructions
	if read(); f.instructions-from > maxJump {
		p.refuse("a loop or a condition holds too many instructions: write functions")
	}
}

// statement reads a statement, and reports whether no other may follow.
func (p *parser) statement() (last bool) {
	switch p.token.kind {
	case "if":
		p.span(p.conditional)
	case "while":
		p.span(p.whileLoop)
	case "do":
		p.advance()
		p.scoped()
		p.expect("end")
	case "for":
		p.span(p.forLoop)
	case "repeat":
		p.span(p.repeatLoop)
	case "function":
		p.namedFunction()
	case "local":
		p.advance()
		p.local()
	case "return":
		p.returns()
		return true
	case "break":
		p.breaks()
	case ";":
	case "::":
		p.label()
	case "goto":
		line := p.token.line
		p.advance()
		label := p.name()
		p.addName()
		p.f.emit()
		if b := p.f.block; !b.labels[label] {
			b.jump(label, jumpTo{len(p.f.locals), line})
		}
	default:
		p.callOrAssignment()
	}
	return false
}

func (p *parser) breaks() {
	b := p.f.block
	for b != nil && !b.loop {
		b = b.outer
	}
	if b == nil {
		p.refuse("break stands in no loop")
	}
	p.advance()
	p.addName()
	p.f.emit()
}

// label reads a label, and the labels and semicolons behind it. At the end of a block, a label is outside of the scope
// of the block's locals, except before until, whose condition sees them.
func (p *parser) label() {
	b, line := p.f.block, p.token.line
	p.advance()
	name := p.name()
	if b.labels[name] {
		p.failAt(line, "label "+name+" is there twice")
		return
	}
	lists.Put(&b.labels, name, true)
	p.addName()
	locals := len(p.f.locals)
	p.expect("::")
	for {
		if p.token.kind == "::" {
			p.nest()
			p.label()
			p.level--
		} else if !p.accept(";") {
			break
		}
	}
	if p.ends() && p.token.kind != "until" {
		locals = b.locals
	}
	if j, ok := b.jumps[name]; ok && j.locals < locals {
		p.failAt(j.line, "goto "+name+" jumps into the scope of a local")
	}
	delete(b.jumps, name)
}

func (p *parser) condition() {
	e := p.expression()
	if e.kind == constNil {
		e.kind = constFalse
	}
	p.f.onlyTrue(&e)
}

func (p *parser) conditional() {
	for first := true; first || p.token.kind == "elseif"; first = false {
		p.advance()
		p.condition()
		p.expect("then")
		p.scoped()
		p.f.emit()
	}
	if p.accept("else") {
		p.scoped()
	}
	p.expect("end")
}

func (p *parser) whileLoop() {
	p.advance()
	p.condition()
	p.begin(true)
	p.expect("do")
	p.f.instructions += 2
	p.scoped()
	p.expect("end")
	p.finish()
}

func (p *parser) repeatLoop() {
	p.begin(true)
	p.begin(false)
	p.advance()
	p.f.instructions += 2
	p.chunk()
	p.expect("until")
	p.condition()
	p.finish()
	p.finish()
}

func (p *parser) forLoop() {
	f := p.f
	p.begin(true)
	p.advance()
	names := []string{p.name()}
	for range 3 { // the hidden locals of the loop
		p.declare(0)
	}
	p.declare(3)
	switch p.token.kind {
	case "=":
		p.advance()
		n := 0
		for more := true; more && n < 3; more = n < 3 && p.accept(",") {
			e := p.expression()
			f.toNext(&e)
			n++
		}
		if n < 2 {
			p.unexpected()
		}
		if n < 3 {
			f.emit()
			f.reserve(1)
		}
	case ",", "in":
		for p.accept(",") {
			p.declare(3 + len(names))
			names = append(names, p.name())
		}
		p.expect("in")
		n, last := p.list()
		p.adjust(3, n, &last)
		f.bump(4)
	default:
		p.unexpected()
	}
	p.bind("(for)", "(for)", "(for)")
	p.expect("do")
	f.emit()
	p.begin(false)
	p.bind(names...)
	f.reserve(len(names))
	p.scoped()
	p.finish()
	f.instructions += 2
	p.expect("end")
	p.finish()
}

func (p *parser) namedFunction() {
	p.advance()
	e := p.lookup(p.name())
	self := false
	for p.token.kind == "." {
		p.field(&e)
	}
	if p.token.kind == ":" {
		self = true
		p.field(&e)
	}
	b := p.body(self)
	p.f.store(&e, &b)
}

func (p *parser) local() {
	if p.accept("function") {
		p.declare(0)
		name := p.name()
		e := expression{kind: local, register: p.f.free}
		p.f.reserve(1)
		p.bind(name)
		b := p.body(false)
		p.f.store(&e, &b)
		return
	}
	var names []string
	for more := true; more; more = p.accept(",") {
		p.declare(len(names))
		names = append(names, p.name())
	}
	n, last := 0, expression{kind: nothing}
	if p.accept("=") {
		n, last = p.list()
	}
	p.adjust(len(names), n, &last)
	p.bind(names...)
}

// adjust makes the number of values in registers equal to the number of variables.
func (p *parser) adjust(variables, values int, last *expression) {
	f := p.f
	extra := variables - values
	if last.kind == call {
		if extra = max(extra+1, 0); extra > 1 {
			f.reserve(extra - 1)
		}
	} else {
		if last.kind != nothing {
			f.toNext(last)
		}
		if extra > 0 {
			f.reserve(extra)
			f.emit()
		}
	}
	if values > variables {
		f.free -= values - variables
	}
}

func (p *parser) returns() {
	f := p.f
	p.advance()
	f.returned = true
	if !p.ends() && p.token.kind != ";" {
		n, last := p.list()
		switch {
		case last.kind == call:
		case n == 1:
			f.toAny(&last)
		default:
			f.toNext(&last)
		}
	}
	f.instructions += 2
}

func (p *parser) callOrAssignment() {
	if e := p.primary(); e.kind != call {
		p.assignment([]*expression{&e})
	}
}

// assignment reads what follows the last of the variables that are assigned.
func (p *parser) assignment(to []*expression) {
	f := p.f
	for {
		last := to[len(to)-1]
		if last.kind < local || last.kind > element {
			p.unexpected()
			return
		}
		if !p.accept(",") {
			break
		}
		e := p.primary()
		if e.kind == local {
			f.hazard(to, e.register)
		}
		if p.level+len(to) >= maxLevels {
			p.refuse("too many variables are assigned at once")
			return
		}
		to = append(to, &e)
	}
	p.expect("=")
	n, e := p.list()
	last := len(to) - 1
	if n == len(to) {
		if e.kind == call {
			if e.vararg {
				f.free--
				e.kind = relocatable
			} else {
				e.kind = inRegister
			}
		}
		f.store(to[last], &e)
		to = to[:last]
	} else {
		p.adjust(len(to), n, &e)
	}
	for _, v := range slices.Backward(to) {
		f.store(v, &expression{kind: inRegister, register: f.free - 1})
	}
}

// hazard keeps the old value of a local that is assigned together with elements that it selects.
func (f *function) hazard(to []*expression, register int) {
	found := false
	for _, e := range to {
		if e.kind != element {
			continue
		}
		if e.register == register {
			e.register, found = f.free, true
		}
		if e.key == register {
			e.key, found = f.free, true
		}
	}
	if found {
		f.emit()
		f.reserve(1)
	}
}
