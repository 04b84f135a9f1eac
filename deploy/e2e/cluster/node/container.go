package node

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/node/contain"
)

// container is a running container.
type container struct {
	pod   *pod
	spec  corev1.Container
	root  contain.Root
	env   []string
	cmd   *exec.Cmd
	ended chan struct{}
	log   output
}

// launch starts a container.
func (p *pod) launch(spec corev1.Container, volumes map[string]string) (*container, error) {
	image, ok := p.node.o.Image(spec.Image)
	if !ok {
		return nil, fmt.Errorf("nobody knows image %s", spec.Image)
	}
	env, err := p.environment(spec)
	if err != nil {
		return nil, err
	}
	c := &container{pod: p, spec: spec, ended: make(chan struct{})}
	for k, v := range env {
		c.env = append(c.env, k+"="+v)
	}
	if c.root, err = p.root(image, spec, volumes); err != nil {
		return nil, err
	}
	command := image.Entrypoint
	if len(spec.Command) > 0 {
		command = spec.Command
	}
	command = slices.Concat(command, spec.Args)
	for i := range command {
		command[i] = expand(command[i], env)
	}
	if c.log.file, err = os.Create(
		filepath.Join(filepath.Dir(p.node.o.Dir), fmt.Sprintf("%s.%s.%s.log", p.object.Namespace, p.object.Name, spec.Name))); err != nil {
		return nil, err
	}
	c.cmd, err = c.command(command)
	if err != nil {
		return nil, err
	}
	c.cmd.Stdout, c.cmd.Stderr = &c.log, &c.log
	if err := p.netns.Start(c.cmd); err != nil {
		return nil, err
	}
	p.node.goes("container "+spec.Name, func() {
		_ = c.cmd.Wait()
		_ = c.log.file.Close()
		close(c.ended)
	})
	return c, nil
}

// command returns a process that runs in the container.
func (c *container) command(args []string) (*exec.Cmd, error) {
	root := c.root
	root.Command = args
	text, err := json.Marshal(root)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(context.Background(), c.pod.node.o.Contain)
	cmd.Env = append(slices.Clone(c.env), contain.Variable+"="+string(text))
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	cmd.WaitDelay = time.Second
	return cmd, nil
}

// root returns the root directory of a container.
func (p *pod) root(image Image, spec corev1.Container, volumes map[string]string) (contain.Root, error) {
	r := contain.Root{Binds: map[string]string{}, Dir: spec.WorkingDir}
	for to, from := range image.Files {
		r.Binds[to] = from
	}
	etc, err := p.node.folder(string(p.object.UID), "etc")
	if err != nil {
		return r, err
	}
	if r.At, err = p.node.folder(string(p.object.UID), "root", spec.Name); err != nil {
		return r, err
	}
	domain := "svc.cluster.local"
	for file, text := range map[string]string{
		"resolv.conf": fmt.Sprintf("nameserver %s\nsearch %s.%s %s cluster.local\noptions ndots:5\n", p.node.host(), p.object.Namespace,
			domain, domain),
		"hosts":         fmt.Sprintf("127.0.0.1 localhost\n%s %s\n", p.addr, p.object.Name),
		"nsswitch.conf": "hosts: files dns\n",
	} {
		if err := writeFile(filepath.Join(etc, file), []byte(text)); err != nil {
			return r, err
		}
		r.Binds["/etc/"+file] = filepath.Join(etc, file)
	}
	for _, m := range spec.VolumeMounts {
		from, ok := volumes[m.Name]
		if !ok {
			return r, fmt.Errorf("there is no volume %s", m.Name)
		}
		r.Binds[m.MountPath] = filepath.Join(from, m.SubPath)
	}
	return r, nil
}

// exec runs a command in the container.
func (c *container) exec(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	cmd, err := c.command(args)
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if err := c.pod.netns.Start(cmd); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })()
	return cmd.Wait()
}

func (c *container) isInit() bool {
	return slices.ContainsFunc(c.pod.object.Spec.InitContainers, func(i corev1.Container) bool { return i.Name == c.spec.Name })
}

// first waits until an init container has done its work: it has ended or, if it is a sidecar, has started.
func (c *container) first(ctx context.Context) error {
	stays := c.spec.RestartPolicy != nil && *c.spec.RestartPolicy == corev1.ContainerRestartPolicyAlways
	for {
		if stays && c.spec.StartupProbe != nil && c.probe(ctx, c.spec.StartupProbe) || stays && c.spec.StartupProbe == nil {
			return nil
		}
		select {
		case <-c.ended:
			if c.cmd.ProcessState.Success() {
				return nil
			}
			return fmt.Errorf("it ended with %v: %s", c.cmd.ProcessState, c.log.since(time.Time{}))
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// output keeps the output of a container, with the time of each line.
type output struct {
	mu    sync.Mutex
	file  *os.File
	rest  []byte
	lines []line
}

type line struct {
	at   time.Time
	text string
}

// Write adds output of the container.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.file != nil {
		_, _ = o.file.Write(b)
	}
	o.rest = append(o.rest, b...)
	now := time.Now()
	for {
		i := bytes.IndexByte(o.rest, '\n')
		if i < 0 {
			return len(b), nil
		}
		o.lines = append(o.lines, line{now, string(o.rest[:i])})
		o.rest = o.rest[i+1:]
	}
}

// since returns the lines since a time.
func (o *output) since(then time.Time) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out strings.Builder
	w := bufio.NewWriter(&out)
	for _, l := range o.lines {
		if !l.at.Before(then) {
			_, _ = w.WriteString(l.text + "\n")
		}
	}
	_ = w.Flush()
	return out.String()
}
