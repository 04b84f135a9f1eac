package discovery

import (
	"cmp"
	"fmt"
	"time"

	"golang.org/x/net/http/httpproxy"

	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/cli"
	"github.com/istiod-lite/istiod-lite/cmd/pilot-discovery/env"
	"github.com/istiod-lite/istiod-lite/pilot/bootstrap"
	"github.com/istiod-lite/istiod-lite/pilot/catalog"
)

// extraRoots is the file where istiod's chart mounts additional roots for servers of JSON Web Key Sets.
const extraRoots = "/cacerts/extra.pem"

// keySetVariables are the variables that configure how the keys of token issuers are fetched. They are istiod's, except
// for ALLOWED_CIDRS_IN_JWKS_URIS.
type keySetVariables struct {
	every                    time.Duration
	mode                     string
	insecure                 bool
	blockedCIDR, allowedCIDR string
	proxies                  httpproxy.Config
}

func (v *keySetVariables) read(e *env.Env) {
	v.every = e.Duration("PILOT_JWT_PUB_KEY_REFRESH_INTERVAL", 20*time.Minute)
	v.mode = e.Text("PILOT_JWT_ENABLE_REMOTE_JWKS", "false")
	v.insecure = e.Asked("JWKS_RESOLVER_INSECURE_SKIP_VERIFY")
	// The lower-case names are curl's.
	v.proxies.HTTPProxy = cmp.Or(e.Text("HTTP_PROXY", ""), e.Getenv("http_proxy"))
	v.proxies.HTTPSProxy = cmp.Or(e.Text("HTTPS_PROXY", ""), e.Getenv("https_proxy"))
	v.proxies.NoProxy = cmp.Or(e.Text("NO_PROXY", ""), e.Getenv("no_proxy"))
	v.blockedCIDR, v.allowedCIDR = e.Text("BLOCKED_CIDRS_IN_JWKS_URIS", ""), e.Text("ALLOWED_CIDRS_IN_JWKS_URIS", "")
}

// options completes the options for fetching keys.
func (v *keySetVariables) options(o *bootstrap.KeySets) error {
	o.ExtraRoots, o.Every, o.Insecure = extraRoots, v.every, v.insecure
	modes := map[string]catalog.FetchMode{
		"false": catalog.ServerFetches, "istiod": catalog.ServerFetches, "true": catalog.Hybrid, "hybrid": catalog.Hybrid,
		"envoy": catalog.ProxiesFetch,
	}
	o.Proxy = v.proxies.ProxyFunc()
	var known bool
	if o.Remote, known = modes[v.mode]; !known {
		return fmt.Errorf("PILOT_JWT_ENABLE_REMOTE_JWKS=%s: write istiod, hybrid or envoy", v.mode)
	}
	var err error
	if o.Block, err = cli.Cidrs("BLOCKED_CIDRS_IN_JWKS_URIS", v.blockedCIDR); err != nil {
		return err
	}
	o.Allow, err = cli.Cidrs("ALLOWED_CIDRS_IN_JWKS_URIS", v.allowedCIDR)
	return err
}
