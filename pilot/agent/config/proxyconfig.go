package config

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// ConfigAnnotation is the annotation of a pod that contains its ProxyConfig.
const ConfigAnnotation = names.AnnotationProxyConfig

func parseBool(text string) (bool, error) { return strconv.ParseBool(text) }

// maxFile is the maximum size of a file, in bytes.
const maxFile = 4 << 20

// readFile returns the content of a file, or nil if it does not exist. A symbolic link to a missing file is an error.
func readFile(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if errors.Is(err, os.ErrNotExist) {
		if _, link := os.Lstat(name); link == nil {
			return nil, fmt.Errorf("%s is a link to a file that does not exist", name)
		}
		return nil, nil
	}
	if err == nil && info.Size() > maxFile {
		err = fmt.Errorf("%s has %d bytes, more than the limit of %d", name, info.Size(), maxFile)
	}
	if err != nil {
		return nil, err
	}
	return os.ReadFile(name)
}

// proxyConfig merges the ProxyConfig of all layers into c.Proxy. It returns the trust domain of the mesh.
func (c *Config) proxyConfig(s Source, env *environment) (string, error) {
	base := mesh.Default()
	if s.Mesh != "" {
		text, err := readFile(s.path(s.Mesh))
		if err != nil {
			return "", fmt.Errorf("--meshConfig: %w", err)
		}
		merged, findings := mesh.Salvage(base, s.Mesh, text)
		if merged == nil {
			return "", fmt.Errorf("--meshConfig: %w", firstError(findings))
		}
		c.addFindings(findings)
		base = merged
	}
	c.Proxy = proto.CloneOf(base.GetDefaultConfig())
	for _, layer := range []struct{ name, text string }{
		{"PROXY_CONFIG", env.text("PROXY_CONFIG", "")},
		{"annotation " + ConfigAnnotation, c.Annotations[ConfigAnnotation]},
	} {
		p, findings := mesh.SalvageProxyConfig(c.Proxy, []byte(layer.text))
		for i := range findings {
			findings[i].File = layer.name
		}
		if p == nil {
			return "", fmt.Errorf("%s: %w", layer.name, firstError(findings))
		}
		c.addFindings(findings)
		c.Proxy = p
	}
	if address := c.Annotations[names.AnnotationDiscoveryAddress]; address != "" {
		c.Proxy.DiscoveryAddress = address
	}
	if text := c.Annotations[names.AnnotationStatusPort]; text != "" {
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			return "", fmt.Errorf("annotation %s: %q: write a port", names.AnnotationStatusPort, text)
		}
		c.Proxy.StatusPort = int32(port)
	}
	if s.ServiceCluster != "" && c.Proxy.GetServiceCluster() == "istio-proxy" {
		c.Proxy.ClusterName = &meshv1alpha1.ProxyConfig_ServiceCluster{ServiceCluster: s.ServiceCluster}
	}
	switch n := env.number("ISTIO_CPU_LIMIT", 0); {
	case s.Concurrency > 0:
		c.Proxy.Concurrency = wrapperspb.Int32(int32(s.Concurrency))
	case c.Proxy.Concurrency == nil && n > 0:
		c.Proxy.Concurrency = wrapperspb.Int32(int32(n))
	}
	if n := c.Proxy.GetConcurrency().GetValue(); n < 0 || n > 1<<10 {
		return "", fmt.Errorf("concurrency %d: write 0, for all processors, to 1024", n)
	}
	for field, port := range map[string]int32{"proxyAdminPort": c.Proxy.GetProxyAdminPort(), "statusPort": c.Proxy.GetStatusPort()} {
		if port < 0 || port > 1<<16-1 {
			return "", fmt.Errorf("%s %d: write a port", field, port)
		}
	}
	if d := c.Proxy.GetDrainDuration().AsDuration(); d < 0 || d > 24*time.Hour {
		return "", fmt.Errorf("drainDuration %v: write a duration of at most 24h", d)
	}
	return env.text("TRUST_DOMAIN", base.GetTrustDomain()), nil
}

func (c *Config) addFindings(findings []diag.Diagnostic) {
	for _, f := range findings {
		c.Findings = append(c.Findings, f.String())
	}
}

// firstError returns the first finding that is an error.
func firstError(findings []diag.Diagnostic) error {
	for _, f := range findings {
		if f.Severity == diag.Error {
			return errors.New(f.String())
		}
	}
	return errors.New("the text cannot be parsed")
}

// podInfo parses a file of labels or annotations in the format of the downward API: KEY="VALUE" in each line.
func podInfo(name string) (map[string]string, error) {
	text, err := readFile(name)
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	for i, line := range strings.Split(string(text), "\n") {
		if line == "" {
			continue
		}
		key, quoted, ok := strings.Cut(line, "=")
		value, err := strconv.Unquote(quoted)
		if !ok || err != nil {
			return nil, fmt.Errorf(`%s:%d: %.64q: write KEY="VALUE"`, name, i+1, line)
		}
		values[key] = value
	}
	return values, nil
}
