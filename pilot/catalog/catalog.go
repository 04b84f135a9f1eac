package catalog

import (
	"slices"

	"github.com/istiod-lite/istiod-lite/api/clusterset"
	policies "github.com/istiod-lite/istiod-lite/api/compliance"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
	"github.com/istiod-lite/istiod-lite/pilot/derive/gatewayapi"
	"github.com/istiod-lite/istiod-lite/pilot/derive/ingress"
	"github.com/istiod-lite/istiod-lite/pilot/facts"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/feature/authz"
	"github.com/istiod-lite/istiod-lite/pilot/feature/compliance"
	"github.com/istiod-lite/istiod-lite/pilot/feature/destinationrule"
	"github.com/istiod-lite/istiod-lite/pilot/feature/envoyfilter"
	"github.com/istiod-lite/istiod-lite/pilot/feature/extension"
	"github.com/istiod-lite/istiod-lite/pilot/feature/grpc"
	"github.com/istiod-lite/istiod-lite/pilot/feature/jwt"
	"github.com/istiod-lite/istiod-lite/pilot/feature/mongo"
	"github.com/istiod-lite/istiod-lite/pilot/feature/mtls"
	"github.com/istiod-lite/istiod-lite/pilot/feature/peermetadata"
	"github.com/istiod-lite/istiod-lite/pilot/feature/telemetry"
	"github.com/istiod-lite/istiod-lite/pilot/feature/virtualservice"
	"github.com/istiod-lite/istiod-lite/pilot/scope"
	"github.com/istiod-lite/istiod-lite/pilot/snapshot"
)

// List is a list of features in the order in which they add to resources. Its methods join what each of them declares.
type List []*feature.Feature

// FetchMode says which component fetches the keys of token issuers.
type FetchMode = jwt.Mode

// Values of FetchMode.
const (
	ServerFetches = jwt.Server
	Hybrid        = jwt.Hybrid
	ProxiesFetch  = jwt.Proxies
)

// Options configures features. The zero Options are the defaults.
type Options struct {
	FetchKeys FetchMode // component that fetches the keys of token issuers
	SendRoots bool      // whether proxies are sent additional roots to trust
	// Compliance limits the TLS of proxies. Their mesh configuration has the same policy.
	Compliance policies.Policy
	// AnyTrustDomain lets workloads accept peers of any trust domain that their roots prove.
	AnyTrustDomain bool
}

// Features returns all features in order, with the default options.
func Features() List { return With(Options{}) }

// With returns all features in order.
func With(o Options) List {
	return List{
		peermetadata.New(),
		authz.NewCustom(),
		extension.New(extension.Authn),
		jwt.New(o.FetchKeys),
		extension.New(extension.Authz),
		authz.New(),
		extension.New(extension.Stats),
		extension.New(extension.Last),
		grpc.New(),
		mtls.New(o.SendRoots, o.AnyTrustDomain),
		virtualservice.New(),
		destinationrule.New(),
		telemetry.New(),
		mongo.New(),
		compliance.New(o.Compliance),
		envoyfilter.New(),
	}
}

// StageOptions configure stages.
type StageOptions struct {
	Domain       string // DNS domain of the cluster
	Namespace    string // namespace of the server
	Limits       limits.Limits
	MultiCluster clusterset.Options // settings for the Multi-Cluster Services API
	// AlphaGatewayAPI puts the alpha parts of the Gateway API into force.
	AlphaGatewayAPI bool

	GatewayController string // controller of the GatewayClasses that are served; default istio.io/gateway-controller
	GatewayClass      string // default GatewayClass; default istio
}

// Stages returns all stages in order: a stage may read the results of earlier ones.
func Stages(o StageOptions) []derive.Stage {
	return []derive.Stage{
		ingress.New(ingress.Options{Domain: o.Domain, Namespace: o.Namespace}),
		gatewayapi.New(gatewayapi.Options{
			Domain: o.Domain, Limits: o.Limits, Controller: o.GatewayController, Class: o.GatewayClass, SetHosts: o.MultiCluster.Hosts,
			Alpha: o.AlphaGatewayAPI,
		}),
	}
}

// Wants returns the external facts that features need for an object.
func (l List) Wants(o *kinds.Object) (list []facts.Want) {
	for _, f := range l {
		if f.Facts != nil && slices.Contains(f.Kinds, o.Kind) {
			list = append(list, f.Facts(o)...)
		}
	}
	return list
}

// Kinds returns the kinds that scopes and features read, with the reach of a change: which proxies it may concern.
func (l List) Kinds() map[*kinds.Kind]snapshot.Reach {
	reach := map[*kinds.Kind]snapshot.Reach{}
	for _, k := range scope.Kinds() {
		reach[k] = snapshot.Scoped
	}
	for _, k := range []*kinds.Kind{kinds.SecretCredential, kinds.ConfigMapCredential} {
		reach[k] = snapshot.Subscribed
	}
	for _, f := range l {
		for _, k := range f.Kinds {
			switch {
			case f.SelectsEverywhere():
				reach[k] = snapshot.Everywhere
			case f.Select != nil:
				reach[k] = max(reach[k], snapshot.Selected)
			}
		}
	}
	return reach
}
