package node

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// kubelet is the server that the API server calls.
type kubelet struct {
	server *http.Server
	port   int32
}

func (k *kubelet) stop() {
	if k.server != nil {
		_ = k.server.Close()
	}
}

// serveKubelet serves exec and logs.
func (n *Node) serveKubelet() error {
	cert, err := n.o.Cluster.Serving(n.host().String())
	if err != nil {
		return err
	}
	l, err := tls.Listen("tcp", net.JoinHostPort(n.host().String(), "0"),
		&tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12})
	if err != nil {
		return fmt.Errorf("listen for the API server: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", n.serveExec)
	mux.HandleFunc("/containerLogs/{namespace}/{pod}/{container}", n.serveLogs)
	n.kubelet = kubelet{&http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}, int32(l.Addr().(*net.TCPAddr).Port)}
	n.goes("kubelet", func() { _ = n.kubelet.server.Serve(l) })
	return nil
}

// container returns the container that a request names.
func (n *Node) container(w http.ResponseWriter, r *http.Request) *container {
	if p := n.find(r.PathValue("namespace"), r.PathValue("pod")); p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		if i := slices.IndexFunc(p.containers, func(c *container) bool { return c.spec.Name == r.PathValue("container") }); i >= 0 {
			return p.containers[i]
		}
	}
	http.Error(w, "no such container", http.StatusNotFound)
	return nil
}

func (n *Node) serveExec(w http.ResponseWriter, r *http.Request) {
	c := n.container(w, r)
	if c == nil {
		return
	}
	o, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	const idle, made = 10 * time.Minute, time.Minute
	remotecommand.ServeExec(w, r, executor{c}, c.pod.object.Name, string(c.pod.object.UID), c.spec.Name, r.URL.Query()["command"], o, idle,
		made, remotecommand.SupportedStreamingProtocols)
}

// executor runs commands in a container.
type executor struct{ c *container }

// ExecInContainer runs a command, without standard input or a terminal.
func (e executor) ExecInContainer(ctx context.Context, _, _, _ string, args []string, _ io.Reader, stdout, stderr io.WriteCloser, tty bool,
	_ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	if tty {
		return fmt.Errorf("terminals are not supported")
	}
	return e.c.exec(ctx, args, stdout, stderr)
}

func (n *Node) serveLogs(w http.ResponseWriter, r *http.Request) {
	c := n.container(w, r)
	if c == nil {
		return
	}
	var since time.Time
	if text := r.URL.Query().Get("sinceTime"); text != "" {
		var err error
		if since, err = time.Parse(time.RFC3339, text); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	_, _ = io.WriteString(w, c.log.since(since))
}

// Signal sends a signal to the main process of a container.
func (n *Node) Signal(namespace, podName, containerName string, s os.Signal) error {
	if p := n.find(namespace, podName); p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, c := range p.containers {
			if c.spec.Name == containerName {
				return c.cmd.Process.Signal(s)
			}
		}
	}
	return fmt.Errorf("no container %s runs in pod %s/%s", containerName, namespace, podName)
}

// Dialer returns a function that connects as a program in a running pod does. Addresses are literal.
func (n *Node) Dialer(namespace, podName string) (func(ctx context.Context, network, address string) (net.Conn, error), error) {
	if p := n.find(namespace, podName); p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.netns != nil {
			return p.netns.DialContext, nil
		}
	}
	return nil, fmt.Errorf("pod %s/%s does not run", namespace, podName)
}
