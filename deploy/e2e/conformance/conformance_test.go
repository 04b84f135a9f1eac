package conformance

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crlog "sigs.k8s.io/controller-runtime/pkg/log"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/apis/v1alpha2"
	"sigs.k8s.io/gateway-api/apis/v1alpha3"
	"sigs.k8s.io/gateway-api/apis/v1beta1"
	"sigs.k8s.io/gateway-api/conformance"
	confv1 "sigs.k8s.io/gateway-api/conformance/apis/v1"
	"sigs.k8s.io/gateway-api/conformance/utils/config"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/deploy/e2e/cluster/node/install"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestConformance runs the suite.
func TestConformance(t *testing.T) {
	ctx := t.Context()
	work := filepath.Join(os.TempDir(), "conformance")
	must.Succeed(t, os.Mkdir(work, 0o755))
	c := start(ctx, t, work)
	crlog.SetLogger(logr.Discard())
	rest := c.Admin().Config()
	scheme := clientgoscheme.Scheme
	for _, add := range []func() error{
		func() error { return gatewayv1.Install(scheme) }, func() error { return v1beta1.Install(scheme) },
		func() error { return v1alpha2.Install(scheme) },
		func() error { return v1alpha3.Install(scheme) }, func() error { return apiextensionsv1.AddToScheme(scheme) },
	} {
		must.Succeed(t, add())
	}
	api, err := client.New(rest, client.Options{})
	must.Succeed(t, err)
	typed, err := kubernetes.NewForConfig(rest)
	must.Succeed(t, err)
	chosen, err := choose(cmp.Or(os.Getenv(whatVar), "core"))
	must.Succeed(t, err)
	o := suite.ConformanceOptions{
		Client: api, Clientset: typed, RestConfig: rest, ManifestFS: []fs.FS{manifests{&conformance.Manifests}},
		ConfigurableOptions: suite.ConfigurableOptions{
			GatewayClassName: class, SupportedFeatures: claimed(), CleanupTestResources: true,
			TimeoutConfig: timeouts(), Implementation: implementation(),
			UsableNetworkAddresses:   []gatewayv1.GatewaySpecAddress{{Type: new(gatewayv1.IPAddressType), Value: usable.String()}},
			UnusableNetworkAddresses: []gatewayv1.GatewaySpecAddress{{Type: new(gatewayv1.IPAddressType), Value: unusable.String()}},
		},
	}
	if os.Getenv(istiodVar) != "" { // it accepts no other addresses
		o.UsableNetworkAddresses = []gatewayv1.GatewaySpecAddress{
			{Type: new(gatewayv1.HostnameAddressType), Value: "infra-backend-v1.gateway-conformance-infra.svc.cluster.local"},
		}
		o.UnusableNetworkAddresses = []gatewayv1.GatewaySpecAddress{
			{Type: new(gatewayv1.HostnameAddressType), Value: "nowhere.gateway-conformance-infra.svc.cluster.local"},
		}
	}
	for _, p := range profiles() {
		o.ConformanceProfiles = append(o.ConformanceProfiles, p.Name)
	}
	// A named test runs even if its feature is not claimed.
	for _, test := range chosen {
		o.SupportedFeatures = append(o.SupportedFeatures, test.Features...)
	}
	run(t, o, work, chosen)
}

// implementation describes the subject of the report.
func implementation() confv1.Implementation {
	if os.Getenv(istiodVar) != "" {
		version := "unknown"
		if b, err := buildinfo.ReadFile(filepath.Join(os.Getenv(install.DirVar), "istiod")); err == nil {
			version = b.Main.Version
		}
		return confv1.Implementation{Organization: "istio", Project: "istio", URL: "https://istio.io/", Version: version,
			Contact: []string{"@istio/maintainers"}}
	}
	return confv1.Implementation{
		Organization: "istiod-lite", Project: "istiod-lite", URL: "https://github.com/istiod-lite/istiod-lite", Version: "1.31.1-lite.1",
		Contact: []string{"@istiod-lite/maintainers"},
	}
}

// run runs the suite, and writes its report.
func run(t *testing.T, o suite.ConformanceOptions, work string, chosen []suite.ConformanceTest) {
	s, err := suite.NewConformanceTestSuite(o)
	must.Succeed(t, err)
	t.Run("suite", func(t *testing.T) {
		s.Setup(t, chosen)
		must.Succeed(t, s.Run(t, chosen))
	})
	report, err := s.Report()
	must.Succeed(t, err)
	slices.SortFunc(report.ProfileReports, func(a, b confv1.ProfileReport) int { return strings.Compare(a.Name, b.Name) })
	text, err := yaml.Marshal(report)
	if err == nil {
		err = os.WriteFile(filepath.Join(work, "report.yaml"), text, 0o644)
	}
	must.Succeed(t, err)
	for _, p := range report.ProfileReports {
		t.Logf("%s: core %+v; extended %+v", p.Name, p.Core, p.Extended)
	}
}

// timeouts are the suite's timeouts, without pauses that wait for nothing, and with more time on a busy machine.
// MaxTimeToConsistency still bounds what it bounds in the suite.
func timeouts() config.TimeoutConfig {
	c := config.DefaultTimeoutConfig()
	c.DefaultPollInterval = 50 * time.Millisecond
	for _, d := range []*time.Duration{
		&c.CreateTimeout, &c.DeleteTimeout, &c.GetTimeout, &c.GatewayStatusMustHaveListeners, &c.GatewayListenersMustHaveConditions,
		&c.ListenerSetListenersMustHaveConditions,
		&c.HTTPRouteMustNotHaveParents, &c.HTTPRouteMustHaveCondition, &c.TLSRouteMustHaveCondition, &c.TCPRouteMustHaveCondition,
		&c.RouteMustHaveParents,
		&c.ManifestFetchTimeout, &c.LatestObservedGenerationSet, &c.DefaultTestTimeout,
	} {
		*d *= 3
	}
	return c
}

// manifests are the suite's manifests with two changes: the namespaces of the mesh request sidecars, and coredns, which
// only tests of UDPRoute use, is left out.
type manifests struct{ of fs.ReadFileFS }

// Open opens a file of the suite.
func (m manifests) Open(name string) (fs.File, error) { return m.of.Open(name) }

// ReadFile reads a file of the suite.
func (m manifests) ReadFile(name string) ([]byte, error) {
	text, err := m.of.ReadFile(name)
	if err != nil {
		return nil, err
	}
	switch name {
	case "mesh/manifests.yaml":
		text = bytes.ReplaceAll(text, []byte("  labels:\n    gateway-conformance: mesh"),
			[]byte("  labels:\n    istio-injection: enabled\n    gateway-conformance: mesh"))
	case "base/manifests.yaml":
		documents := strings.Split(string(text), "\n---\n")
		documents = slices.DeleteFunc(documents, func(d string) bool {
			return strings.Contains(d, "kind: Deployment") && strings.Contains(d, "name: coredns\n")
		})
		text = []byte(strings.Join(documents, "\n---\n"))
	}
	return text, nil
}
