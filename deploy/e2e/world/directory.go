package world

import (
	"bytes"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/deploy/e2e/proxy"
	yamlv3 "go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Directory holds the parts of a configuration directory that the world needs.
type Directory struct {
	// Pods are in the order of their files.
	Pods []Pod
	// Hosts maps service names, as a pod's resolver would know them, to addresses.
	Hosts map[string]netip.Addr
	// Certificates holds the certificates of Secrets of type kubernetes.io/tls, by "namespace/name".
	Certificates map[string]tls.Certificate
}

// Pod is a Pod of the directory.
type Pod struct {
	Node    proxy.Node
	Version string
	// Proxied is false for a pod without Envoy.
	Proxied bool
	// HTTP, HTTPS and TCP are the ports that its container listens on. Calls are the URLs that it calls.
	HTTP, HTTPS, TCP []int
	Calls            []string
	// Credential is the name of the Secret in its namespace with the certificate for HTTPS.
	Credential string
}

// Redirected reports whether the pod's traffic is redirected to its sidecar.
func (p Pod) Redirected() bool { return p.Node.Interception == node.Redirect }

// Read reads every YAML file below the directory.
func Read(dir string) (Directory, error) {
	d := Directory{Hosts: map[string]netip.Addr{}}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		if err := d.readFile(path); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	})
	return d, err
}

func (d *Directory) readFile(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for docs := yamlv3.NewDecoder(bytes.NewReader(content)); ; {
		var tree any
		if err := docs.Decode(&tree); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		doc, err := yamlv3.Marshal(tree)
		if err != nil {
			return err
		}
		if err := d.add(doc); err != nil {
			return err
		}
	}
}

func (d *Directory) add(doc []byte) error {
	var meta metav1.TypeMeta
	if err := yaml.Unmarshal(doc, &meta); err != nil {
		return err
	}
	switch {
	case meta.APIVersion == "v1" && meta.Kind == "Pod":
		var p corev1.Pod
		if err := yaml.UnmarshalStrict(doc, &p); err != nil {
			return err
		}
		pod, err := podOf(&p)
		if err != nil {
			return fmt.Errorf("pod %s: %w", p.Name, err)
		}
		d.Pods = append(d.Pods, pod)
	case meta.APIVersion == "v1" && meta.Kind == "Service":
		var s corev1.Service
		if err := yaml.UnmarshalStrict(doc, &s); err != nil {
			return err
		}
		if ip, err := netip.ParseAddr(s.Spec.ClusterIP); err == nil {
			d.Hosts[s.Name+"."+s.Namespace] = ip
		}
	case meta.APIVersion == "v1" && meta.Kind == "Secret":
		var s corev1.Secret
		if err := yaml.UnmarshalStrict(doc, &s); err != nil || s.Type != corev1.SecretTypeTLS {
			return err
		}
		pair, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey])
		if err != nil {
			return fmt.Errorf("secret %s: %w", s.Name, err)
		}
		if d.Certificates == nil {
			d.Certificates = map[string]tls.Certificate{}
		}
		d.Certificates[s.Namespace+"/"+s.Name] = pair
	}
	return nil
}

func podOf(p *corev1.Pod) (Pod, error) {
	addr, err := netip.ParseAddr(p.Status.PodIP)
	if err != nil {
		return Pod{}, fmt.Errorf("podIP: %w", err)
	}
	pod := Pod{Proxied: p.Labels["sidecar.istio.io/inject"] != "false", Version: p.Labels["version"]}
	n := proxy.Node{
		Type: "sidecar", Addr: addr, Name: p.Name, Namespace: p.Namespace, Workload: p.Labels["app"], ServiceAccount: p.Spec.ServiceAccountName,
		NodeName: p.Spec.NodeName, Labels: p.Labels,
	}
	switch {
	case p.Annotations["inject.istio.io/templates"] == "gateway":
		n.Type = node.Router
	case p.Annotations["sidecar.istio.io/interceptionMode"] != "":
		n.Interception = node.Interception(p.Annotations["sidecar.istio.io/interceptionMode"])
	case pod.Proxied:
		n.Interception = node.Redirect
	}
	pod.Node = n
	if c := proxyOf(p); c != nil && p.Annotations["sidecar.istio.io/status"] != "" {
		if err := pod.injected(p, c); err != nil {
			return Pod{}, fmt.Errorf("container %s: %w", c.Name, err)
		}
	}
	for _, c := range p.Spec.Containers {
		if c.Name == proxyContainer {
			continue
		}
		if err := pod.parse(c.Args); err != nil {
			return Pod{}, fmt.Errorf("container %s: %w", c.Name, err)
		}
	}
	return pod, nil
}

func (p *Pod) parse(args []string) error {
	f := flag.NewFlagSet("echo", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	port := func(into *[]int) func(string) error {
		return func(s string) error {
			n, err := strconv.Atoi(s)
			*into = append(*into, n)
			return err
		}
	}
	f.Func("http", "port for HTTP/1.1, HTTP/2 and gRPC", port(&p.HTTP))
	f.Func("https", "port for HTTP/1.1 and HTTP/2 over TLS", port(&p.HTTPS))
	f.StringVar(&p.Credential, "credential", "", "Secret with the certificate of -https")
	f.Func("tcp", "port for lines of TCP", port(&p.TCP))
	f.Func("call", "URL to call before each answer", func(s string) error {
		p.Calls = append(p.Calls, s)
		return nil
	})
	if err := f.Parse(args); err != nil {
		return err
	}
	if extra := f.Args(); len(extra) > 0 {
		return fmt.Errorf("arguments not understood: %s", strings.Join(extra, " "))
	}
	return nil
}

// Resolve returns the address of a host:port as seen from a namespace. Literal addresses are returned unchanged.
func (d Directory) Resolve(namespace, hostport string) (string, error) {
	if _, err := netip.ParseAddrPort(hostport); err == nil {
		return hostport, nil
	}
	host, port, ok := strings.Cut(hostport, ":")
	if !ok {
		return "", fmt.Errorf("no port in %q", hostport)
	}
	host = strings.TrimSuffix(strings.TrimSuffix(host, ".cluster.local"), ".svc")
	if !strings.Contains(host, ".") {
		host += "." + namespace
	}
	ip, ok := d.Hosts[host]
	if !ok {
		return "", fmt.Errorf("no service %s", host)
	}
	return ip.String() + ":" + port, nil
}
