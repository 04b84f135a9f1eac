package pods

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ErrForbidden is returned if this machine does not let the program create or use namespaces.
var ErrForbidden = errors.New("this machine does not let ordinary programs make network namespaces")

const (
	// insideVar is the environment variable of the inner program with the number of inherited listeners.
	insideVar = "ISTIOD_LITE_PODS_INSIDE"
	// firstFD is the first inherited descriptor, after the standard ones.
	firstFD = 3
	// exitForbidden is the exit code of the inner program if namespaces exist but cannot be used.
	exitForbidden = 83
	// stopGrace is how long the inner program may take to end.
	stopGrace = 10 * time.Second
)

// EnterOptions say how to run the program again.
type EnterOptions struct {
	Args []string
	// Env is added to the environment.
	Env []string
	// Listeners are inherited in order. They keep accepting from the network in which they were opened.
	Listeners []*net.TCPListener
}

// Inside reports whether Enter started this process.
func Inside() bool { return os.Getenv(insideVar) != "" }

// Enter runs this program again inside new namespaces, as process 1 and root over its network, and waits for it. The
// end of the context sends SIGTERM. The error is ErrForbidden if the machine forbids namespaces, or an *exec.ExitError.
func Enter(ctx context.Context, o EnterOptions) error {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", o.Args...)
	cmd.Env = append(os.Environ(), o.Env...)
	cmd.Env = append(cmd.Env, insideVar+"="+strconv.Itoa(len(o.Listeners)))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	for _, l := range o.Listeners {
		f, err := l.File()
		if err != nil {
			return fmt.Errorf("hand over listener %s: %w", l.Addr(), err)
		}
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
		// With its own process group, Ctrl-C reaches only the outer program, which terminates the inner one.
		Setpgid: true,
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopGrace
	if err := cmd.Start(); err != nil {
		if forbids(err) {
			return fmt.Errorf("%w: %w (%s)", ErrForbidden, err, hint())
		}
		return fmt.Errorf("start in namespaces: %w", err)
	}
	err := cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == exitForbidden {
		return fmt.Errorf("%w (%s)", ErrForbidden, hint())
	}
	return err
}

// Refuse ends the inner program so that Enter returns ErrForbidden. It is for an error of NewNetwork.
func Refuse(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(exitForbidden)
}

// Listeners returns the inherited listeners, in order. It may be called once.
func Listeners() ([]net.Listener, error) {
	n, err := strconv.Atoi(os.Getenv(insideVar))
	if err != nil {
		return nil, fmt.Errorf("inherited listeners: %w", err)
	}
	all := make([]net.Listener, n)
	for i := range all {
		f := os.NewFile(uintptr(firstFD+i), "listener")
		if all[i], err = net.FileListener(f); err != nil {
			return nil, fmt.Errorf("inherited listener %d: %w", i, err)
		}
		f.Close()
	}
	return all, nil
}

func forbids(err error) bool {
	for _, e := range []syscall.Errno{syscall.EPERM, syscall.EACCES, syscall.ENOSPC, syscall.EINVAL, syscall.ENOSYS, syscall.EUSERS} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// hint names the setting that most likely forbids namespaces here.
func hint() string {
	is := func(path, value string) bool {
		b, err := os.ReadFile(path)
		return err == nil && strings.TrimSpace(string(b)) == value
	}
	switch {
	case is("/proc/sys/user/max_user_namespaces", "0"):
		return "user.max_user_namespaces is 0: raise it with sysctl"
	case is("/proc/sys/user/max_net_namespaces", "0"):
		return "user.max_net_namespaces is 0: raise it with sysctl"
	case is("/proc/sys/kernel/unprivileged_userns_clone", "0"):
		return "kernel.unprivileged_userns_clone is 0: set it to 1 with sysctl"
	case is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1"):
		return "kernel.apparmor_restrict_unprivileged_userns is 1: set it to 0 with sysctl"
	}
	return "a container's seccomp profile is the usual cause"
}
