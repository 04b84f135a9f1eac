package lua

import "math"

// The limits of LuaJIT.
const (
	maxLevels    = 200   // nested expressions and blocks, all functions together
	maxLocals    = 200   // of one function at once
	maxUpvalues  = 60    // of one function
	maxRegisters = 250   // of one function
	maxNames     = 65476 // locals, labels and jumps of nested functions, also those whose scope has ended
	maxConstants = 65536 // of one function
	maxJump      = 32700 // instructions that a jump passes over; LuaJIT has some more, and here instructions are not merged
	byteOperand  = 255   // the last constant that an instruction can name without a register
)

// expression says where the value of an expression is.
type expression struct {
	kind     place
	register int     // the register of a local, of a value, or of the table of an element
	key      int     // the register of an element's key; -1 if the key is a constant
	number   float64 // the value of constNumber
	text     string  // the value of constString, or the name of a global
	ifTrue   bool    // whether a pending jump is taken if the value is true
	ifFalse  bool    // whether a pending jump is taken if the value is false
	concat   bool    // whether the last instruction concatenates
	negation bool    // whether the last instruction is "not"
	vararg   bool    // whether the call is "..."
}

// place is a kind of place for a value. The constants come first.
type place int

const (
	constNil place = iota
	constFalse
	constTrue
	constString
	constNumber
	constCData // not a constant to the compiler
	local
	upvalue
	global
	element
	jump        // the result of a comparison
	relocatable // the result of an instruction whose register is not chosen
	inRegister
	call // any number of values
	nothing
)

func (e *expression) jumps() bool    { return e.ifTrue || e.ifFalse }
func (e *expression) constant() bool { return e.kind <= constNumber }

// foldable reports whether e is a number that operations on constants may combine.
func (e *expression) foldable() bool { return e.kind == constNumber && !e.jumps() }

// function is the account of one function.
type function struct {
	p            *parser
	outer        *function
	depth        int
	block        *block
	varies       bool            // whether the function takes "..."
	locals       []string        // locals in scope, by register
	free         int             // the first register that is not in use
	frame        int             // the largest number of registers that were in use at once
	instructions int             // an upper bound: LuaJIT may merge some
	namesBefore  int             // the parser's names at the beginning of the function
	texts        map[string]int  // the indexes of strings among the constants
	numbers      map[float64]int // the indexes of numbers among the constants
	objects      int             // the number of constants that are no numbers
	upvalues     map[int]bool    // the IDs of variables of the functions around
	returned     bool            // whether a return was read
	fixup        bool            // whether a return stands before the first closure: LuaJIT repeats it at the end of the function
	closures     bool            // whether a function within was read
}

func (f *function) emit() int {
	f.instructions++
	return f.instructions - 1
}

func (f *function) bump(n int) {
	if n += f.free; n > f.frame {
		if n >= maxRegisters {
			f.p.refuse("a function or an expression needs too many registers: shorten its lists, and nest calls less deeply")
			return
		}
		f.frame = n
	}
}

func (f *function) reserve(n int) {
	f.bump(n)
	f.free += n
}

func (f *function) freeRegister(r int) {
	if r >= len(f.locals) {
		f.free--
	}
}

func (f *function) release(e *expression) {
	if e.kind == inRegister {
		f.freeRegister(e.register)
	}
}

func (f *function) textConstant(s string) int {
	n, ok := f.texts[s]
	if !ok {
		n = f.object()
		f.texts[s] = n
	}
	return n
}

// object adds a constant that is no number.
func (f *function) object() int {
	f.objects++
	if f.objects > maxConstants {
		f.p.refuse("a function has too many constants")
	}
	return f.objects - 1
}

func (f *function) numberConstant(v float64) int {
	n, ok := f.numbers[v]
	if !ok {
		n = len(f.numbers)
		f.numbers[v] = n
		if n >= maxConstants {
			f.p.refuse("a function has too many constants")
		}
	}
	return n
}

// discharge emits the instruction that loads a variable or an element. A call and a local have their register already.
func (f *function) discharge(e *expression) {
	switch e.kind {
	case upvalue:
	case global:
		f.textConstant(e.text)
	case element:
		if e.key >= 0 {
			f.freeRegister(e.key)
		}
		f.freeRegister(e.register)
	case call, local:
		e.kind = inRegister
		return
	default:
		return
	}
	f.emit()
	e.kind, e.concat, e.negation = relocatable, false, false
}

// toRegisterPlain puts a value into a register, without the jumps of and, or and comparisons.
func (f *function) toRegisterPlain(e *expression, r int) {
	f.discharge(e)
	switch e.kind {
	case constString:
		f.textConstant(e.text)
		f.emit()
	case constNumber:
		if e.number != math.Trunc(e.number) || math.Abs(e.number) > math.MaxInt16 {
			f.numberConstant(e.number)
		}
		f.emit()
	case constCData:
		f.object()
		f.emit()
	case relocatable:
	case inRegister:
		if r != e.register {
			f.emit()
		}
	case constNil, constFalse, constTrue:
		f.emit()
	default:
		return
	}
	e.kind, e.register = inRegister, r
}

func (f *function) toRegister(e *expression, r int) {
	f.toRegisterPlain(e, r)
	if e.kind == jump || e.jumps() {
		f.instructions += 4
	}
	e.ifTrue, e.ifFalse = false, false
	e.kind, e.register = inRegister, r
}

func (f *function) toNext(e *expression) {
	f.discharge(e)
	f.release(e)
	f.reserve(1)
	f.toRegister(e, f.free-1)
}

func (f *function) toAny(e *expression) int {
	f.discharge(e)
	if e.kind == inRegister {
		if !e.jumps() {
			return e.register
		}
		if e.register >= len(f.locals) {
			f.toRegister(e, e.register)
			return e.register
		}
	}
	f.toNext(e)
	return e.register
}

func (f *function) toValue(e *expression) {
	if e.jumps() {
		f.toAny(e)
	} else {
		f.discharge(e)
	}
}

// index turns a table into its element of a key.
func (f *function) index(t, key *expression) {
	t.kind, t.key = element, -1
	switch {
	case key.kind == constNumber && key.number == math.Trunc(key.number) && 0 <= key.number && key.number <= byteOperand:
	case key.kind == constString && f.textConstant(key.text) <= byteOperand:
	default:
		t.key = f.toAny(key)
	}
}

func (f *function) store(to, e *expression) {
	switch to.kind {
	case local:
		f.release(e)
		f.toRegister(e, to.register)
		return
	case upvalue:
		f.toValue(e)
		switch {
		case e.kind == constString:
			f.textConstant(e.text)
		case e.kind == constNumber:
			f.numberConstant(e.number)
		case e.kind > constTrue:
			f.toAny(e)
		}
	case global:
		f.toAny(e)
		f.textConstant(to.text)
	default:
		f.toAny(e)
	}
	f.emit()
	f.release(e)
}

// method puts a method and its object into the registers of a call.
func (f *function) method(e *expression, name string) {
	f.toAny(e)
	f.release(e)
	at := f.free
	f.instructions += 2
	if f.textConstant(name) <= byteOperand {
		f.reserve(3)
	} else {
		f.reserve(4)
		f.emit()
		f.free--
	}
	e.kind, e.register = inRegister, at
}

// branch emits a jump that depends on e.
func (f *function) branch(e *expression) {
	if e.kind == relocatable && e.negation {
		f.instructions += 2
		return
	}
	if e.kind != inRegister {
		f.reserve(1)
		f.toRegisterPlain(e, f.free-1)
	}
	f.instructions += 2
	f.release(e)
}

// onlyTrue emits a jump over what follows, taken if e is false.
func (f *function) onlyTrue(e *expression) {
	f.discharge(e)
	switch e.kind {
	case constString, constNumber, constTrue:
	case jump:
		e.ifFalse = true
	default:
		f.branch(e)
		e.ifFalse = true
	}
	e.ifTrue = false
}

// onlyFalse emits a jump over what follows, taken if e is true.
func (f *function) onlyFalse(e *expression) {
	f.discharge(e)
	switch e.kind {
	case constNil, constFalse:
	case jump:
		e.ifTrue = true
	default:
		f.branch(e)
		e.ifTrue = true
	}
	e.ifFalse = false
}

// fold replaces a by the result of an operator on two constants, and reports whether it did.
func fold(op string, a, b *expression) bool {
	if !a.foldable() || !b.foldable() {
		return false
	}
	v := 0.0
	switch x, y := a.number, b.number; op {
	case "+":
		v = x + y
	case "-":
		v = x - y
	case "*":
		v = x * y
	case "/":
		v = x / y
	case "%":
		v = x - math.Floor(x/y)*y
	case "^":
		v = math.Pow(x, y)
	}
	if math.IsNaN(v) || v == 0 && math.Signbit(v) {
		return false
	}
	a.number = v
	return true
}

func (f *function) arithmetic(op string, a, b *expression) {
	if fold(op, a, b) {
		return
	}
	if op == "^" {
		f.toAny(b)
		f.toAny(a)
	} else {
		f.toValue(b)
		if b.kind != constNumber || f.numberConstant(b.number) > byteOperand {
			f.toAny(b)
		}
		f.toValue(a)
		if a.kind != constNumber || b.kind == constNumber || f.numberConstant(a.number) > byteOperand {
			f.toAny(a)
		}
	}
	f.releaseBoth(a, b)
	f.emit()
	a.kind, a.concat, a.negation = relocatable, false, false
}

func (f *function) releaseBoth(a, b *expression) {
	f.release(a)
	f.release(b)
}

func (f *function) compare(op string, a, b *expression) {
	f.toValue(a)
	result := a
	if op == "==" || op == "~=" {
		if a.constant() {
			a, b = b, a
		}
		f.toAny(a)
		f.toValue(b)
		switch {
		case b.kind == constString:
			f.textConstant(b.text)
		case b.kind == constNumber:
			f.numberConstant(b.number)
		case b.kind > constTrue:
			f.toAny(b)
		}
	} else {
		if op == ">" || op == ">=" {
			a, b = b, a
		}
		f.toAny(a)
		f.toAny(b)
	}
	f.releaseBoth(a, b)
	f.instructions += 2
	result.kind = jump
}

// left prepares the left side of an operator before the right side is read.
func (f *function) left(op string, e *expression) {
	switch op {
	case "and":
		f.onlyTrue(e)
	case "or":
		f.onlyFalse(e)
	case "..":
		f.toNext(e)
	case "==", "~=":
		if !e.constant() || e.jumps() {
			f.toAny(e)
		}
	default:
		if !e.foldable() {
			f.toAny(e)
		}
	}
}

func (f *function) binary(op string, a, b *expression) {
	switch op {
	case "and":
		f.discharge(b)
		b.ifFalse = b.ifFalse || a.ifFalse
		*a = *b
	case "or":
		f.discharge(b)
		b.ifTrue = b.ifTrue || a.ifTrue
		*a = *b
	case "..":
		f.toValue(b)
		if b.kind == relocatable && b.concat {
			f.release(a)
		} else {
			f.toNext(b)
			f.release(b)
			f.release(a)
			f.emit()
		}
		a.kind, a.concat, a.negation = relocatable, true, false
	case "==", "~=", "<", ">", "<=", ">=":
		f.compare(op, a, b)
	default:
		f.arithmetic(op, a, b)
	}
}

func (f *function) unary(op string, e *expression) {
	switch {
	case op == "not":
		e.ifTrue, e.ifFalse = e.ifFalse, e.ifTrue
		f.discharge(e)
		switch {
		case e.kind == constNil || e.kind == constFalse:
			e.kind = constTrue
			return
		case e.constant() || e.kind == constCData:
			e.kind = constFalse
			return
		case e.kind == jump:
			return
		case e.kind == relocatable:
			f.reserve(1)
			e.kind, e.register = inRegister, f.free-1
		}
	case op == "-" && !e.jumps() && e.kind == constCData:
		return
	case op == "-" && e.foldable() && e.number != 0:
		e.number = -e.number
		return
	default:
		f.toAny(e)
	}
	f.release(e)
	f.emit()
	e.kind, e.concat, e.negation = relocatable, false, op == "not"
}
