package xds

import (
	"cmp"
	"fmt"
	"log/slog"

	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/xds/wire"
)

// allowSecrets removes from a request the names of secrets that the client may not receive. They are not answered, like
// unknown names. So no session ever subscribes to what its peer may not have. It reports whether the session has to
// take the rest of the request.
func (c *conn) allowSecrets(r *wire.Request, log *slog.Logger) bool {
	var allowed []string
	var why error
	denied := 0
	for _, name := range r.Names.Names.All() {
		if err := c.allowSecret(name); err != nil {
			denied, why = denied+1, cmp.Or(why, err)
			continue
		}
		allowed = append(allowed, name)
	}
	if denied > 0 {
		r.Names.Names = c.server.interner.Of(allowed)
		c.server.metrics.deniedSecrets.Add(float64(denied))
		c.server.warnings.log(log.Warn, c.warnings, "the proxy asked for secrets that it may not receive", "type", envoy.ShortType(r.TypeURL), "denied", denied, "err", why)
	}
	return allowed != nil || c.session.StatusOf(r.TypeURL) != nil
}

// allowSecret returns an error unless the client may receive the secret of that name.
func (c *conn) allowSecret(name string) error {
	if !c.profile.workload {
		return fmt.Errorf("secrets are not served to a %s", c.profile.name)
	}
	namespace, ok := names.SecretNamespace(name, c.proxy.Namespace)
	if !ok {
		return fmt.Errorf("%.200q is no name of a secret", name)
	}
	return c.server.authorizer.Secret(c.peer, namespace)
}
