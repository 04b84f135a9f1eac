package lua

import (
	"maps"
	"slices"
)

// variable is a local that is in scope.
type variable struct {
	f        *function
	register int
	id       int
}

// block is a scope within a function.
type block struct {
	outer  *block
	locals int               // the number of locals in scope where the block begins
	loop   bool              // whether break may leave it
	labels map[string]bool   // the labels that were read
	jumps  map[string]jumpTo // pending jumps by the label
}

// jumpTo is the goto with the fewest locals in scope, of all gotos of a label.
type jumpTo struct{ locals, line int }

func (p *parser) open(varies bool) {
	p.f = &function{
		p: p, outer: p.f, varies: varies, frame: 1, namesBefore: p.names, instructions: 1,
		texts: map[string]int{}, numbers: map[float64]int{}, upvalues: map[int]bool{},
	}
	if p.f.outer != nil {
		p.f.depth = p.f.outer.depth + 1
	}
}

func (p *parser) close() {
	f := p.f
	p.finish()
	f.instructions += 2
	if f.fixup && f.instructions > maxJump {
		p.refuse("a function that returns is too long")
	}
	p.names, p.f = f.namesBefore, f.outer
}

func (p *parser) begin(loop bool) {
	p.f.block = &block{outer: p.f.block, locals: len(p.f.locals), loop: loop}
}

// finish ends a scope. Its pending jumps become jumps of the scope around it.
func (p *parser) finish() {
	f, b := p.f, p.f.block
	f.block = b.outer
	p.forget(b.locals)
	f.free = len(f.locals)
	f.emit()
	for _, label := range slices.Sorted(maps.Keys(b.jumps)) {
		switch j := b.jumps[label]; {
		case b.outer == nil:
			p.failAt(j.line, "there is no label "+label+" to go to")
		case !b.outer.labels[label]:
			b.outer.jump(label, jumpTo{b.locals, j.line})
		}
	}
}

func (b *block) jump(label string, j jumpTo) {
	if b.jumps == nil {
		b.jumps = map[string]jumpTo{}
	}
	if old, ok := b.jumps[label]; !ok || j.locals < old.locals {
		b.jumps[label] = j
	}
}

func (p *parser) addName() {
	if p.names++; p.names > maxNames {
		p.refuse("a function has too many locals, labels and jumps")
	}
}

// declare adds the names of locals that are not in scope yet.
func (p *parser) declare(before int) {
	if len(p.f.locals)+before >= maxLocals {
		p.refuse("a function has more than 200 locals at once")
	}
	p.addName()
}

// bind brings locals into scope.
func (p *parser) bind(names ...string) {
	for _, name := range names {
		if len(p.f.locals) >= maxLocals {
			return // refused already
		}
		p.visible[name] = append(p.visible[name], variable{p.f, len(p.f.locals), p.f.depth<<8 | len(p.f.locals)})
		p.f.locals = append(p.f.locals, name)
	}
}

// forget ends the scope of locals.
func (p *parser) forget(keep int) {
	for _, name := range p.f.locals[keep:] {
		v := p.visible[name]
		p.visible[name] = v[:len(v)-1]
	}
	p.f.locals = p.f.locals[:keep]
}

func (p *parser) lookup(name string) expression {
	list := p.visible[name]
	if len(list) == 0 {
		return expression{kind: global, text: name}
	}
	v := list[len(list)-1]
	if v.f == p.f {
		return expression{kind: local, register: v.register}
	}
	for f := p.f; f != v.f; f = f.outer {
		f.upvalues[v.id] = true
		if len(f.upvalues) > maxUpvalues {
			p.refuse("a function uses more than 60 locals of the functions around it")
			break
		}
	}
	return expression{kind: upvalue}
}
