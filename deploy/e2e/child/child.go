package child

import (
	"os/exec"
	"runtime"
	"syscall"
)

// Start starts a command that the kernel kills when this process ends. The channel is closed once the command has
// ended. ProcessState then has the result.
func Start(cmd *exec.Cmd) (<-chan struct{}, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started, ended := make(chan error), make(chan struct{})
	go func() {
		// The kernel sends the signal when the starting thread ends, which may be long before this process ends. So the
		// thread is kept while the program runs.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait()
			close(ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return ended, nil
}
