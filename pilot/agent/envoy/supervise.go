package envoy

import "runtime"

// supervise starts Envoy and waits for its end, on one thread.
func (p *Process) supervise(started chan<- struct{}, failed chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := p.cmd.Start(); err != nil {
		failed <- err
		return
	}
	p.o.Log.Info("started Envoy", "pid", p.cmd.Process.Pid, "binary", p.o.Binary)
	close(started)
	_ = p.cmd.Wait() // ProcessState has the result
	close(p.ended)
}
