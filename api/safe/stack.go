package safe

import "runtime"

// GrowStack makes the stack of a new goroutine large enough for most work. A small stack would grow several times, and
// each time all frames are moved. At the beginning there are few.
//
//go:noinline
func GrowStack() {
	var frame [12 << 10]byte
	runtime.KeepAlive(&frame)
}
