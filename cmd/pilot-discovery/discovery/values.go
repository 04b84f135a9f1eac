package discovery

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/env"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/input"
)

func discoveryChecks() cli.Checks {
	c := input.MeshChecks()
	c["namespace"] = cli.CheckNamespace
	for _, name := range []string{"grpcAddr", "secureGRPCAddr", "httpAddr", "httpsAddr", "monitoringAddr"} {
		c[name] = cli.CheckAddress
	}
	for _, name := range []string{"keepaliveInterval", "keepaliveTimeout", "debounceMax", "remoteClusterTimeout"} {
		c[name] = cli.DurationOf(time.Millisecond, "a time, for example 10s")
	}
	for _, name := range []string{"keepaliveMaxServerConnectionAge", "shutdownDuration", "drainDuration", "debounceAfter"} {
		c[name] = cli.DurationOf(0, "a time, for example 10s, or 0")
	}
	c["kubernetesApiQPS"] = cli.CheckQPS
	c["kubernetesApiBurst"] = cli.NumberOf(1, math.MaxInt32, "a number of requests, for example 160")
	c["maxRecvMessageSize"] = cli.NumberOf(1<<10, math.MaxInt32, "a number of bytes from 1024 on, for example 4194304")
	c["maxStreams"] = cli.NumberOf(10, math.MaxInt32, "a number of streams from 10 on, for example 12000")
	c["clusterRegistriesNamespace"] = cli.CheckNamespace
	c["cniNamespace"] = func(text string) error {
		if text == "" {
			return nil
		}
		return cli.CheckNamespace(text)
	}
	c["revision"] = cli.CheckRevision
	return c
}

// controllerName is the form of names of controllers in GatewayClasses: a domain and a path.
var controllerName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9/\-._~%!$&'()*+,;=:]+$`)

// checkController rejects names that GatewayClasses cannot have, and names of controllers with another meaning.
func checkController(name string) error {
	switch {
	case name == names.MeshController, name == names.UnmanagedGatewayController:
		return fmt.Errorf("PILOT_GATEWAY_API_CONTROLLER_NAME=%s is the controller of other classes: write another name", name)
	case len(name) > 253 || !controllerName.MatchString(name):
		return fmt.Errorf("PILOT_GATEWAY_API_CONTROLLER_NAME=%s: write a domain and a path, for example example.com/gateways", name)
	}
	return nil
}

// checkNames rejects names that objects cannot have, and one name for two ConfigMaps: an API server would refuse to
// store them, or one would replace the other.
func (f *flags) checkNames() error {
	c := f.o.Certificates
	for _, v := range [][2]string{
		{"PILOT_CA_CERT_CONFIGMAP", c.RootsMap}, {"PILOT_CRL_CONFIGMAP", c.CRLMap},
		{"PILOT_GATEWAY_API_DEFAULT_GATEWAYCLASS_NAME", f.o.GatewayClass},
	} {
		if validation.IsDNS1123Subdomain(v[1]) != nil {
			return fmt.Errorf("%s=%s: write the name of an object, for example istio-ca", v[0], v[1])
		}
	}
	if validation.IsQualifiedName(f.o.Untaint.Taint) != nil {
		return fmt.Errorf("PILOT_NODE_UNTAINT_CONTROLLERS_TAINT_NAME=%s: write the key of a taint, without a value and an effect, "+
			"for example %s", f.o.Untaint.Taint, names.TaintNotReady)
	}
	if c.RootsMap == c.CRLMap {
		return fmt.Errorf("PILOT_CA_CERT_CONFIGMAP and PILOT_CRL_CONFIGMAP are both %s: write different names", c.CRLMap)
	}
	return nil
}

// Judge returns the names of the arguments of another istiod that have no effect here, and an error if this server
// would not start with these arguments and this environment. It reads no files and no cluster.
func Judge(e *env.Env, args []string) (idle []string, err error) {
	f := &flags{}
	flags := pflag.NewFlagSet("discovery", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	f.register(flags, e)
	idle = UnknownFlags(flags, args)
	if err := flags.Parse(args); err != nil {
		return idle, err
	}
	for _, name := range f.unused {
		if given := flags.Lookup(name); given.Value.String() != given.DefValue {
			idle = append(idle, name)
		}
	}
	if err := discoveryChecks().Run(flags); err != nil {
		return idle, err
	}
	if f.provider == customProvider { // the files are mounted where the server runs
		f.provider = istiodProvider
	}
	return idle, errors.Join(e.Refusal(), f.kube.limits(&f.o.Options), f.Options(&f.o.Options), checkController(f.o.GatewayController),
		f.checkNames(), f.certificates(&f.o.Certificates), cli.CheckNativeSidecars(f.o.Injection.NativeSidecars))
}
