package inspect

import (
	"fmt"
	"slices"

	networkingv1 "istio.io/api/networking/v1"

	"github.com/istiod-lite/istiod-lite/api/credentials"
	"github.com/istiod-lite/istiod-lite/api/identity"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/diff"
	"github.com/istiod-lite/istiod-lite/pilot/inspect/trace"
)

// secrets adds the secrets that a proxy names and may have to its configuration. A proxy that is connected to a server
// has exactly the secrets that the server has sent it, because only the server knows the proxy's verified identity. If
// it is not known whether a secret exists, it is assumed to be sent, and a note says so.
func (h *hops) secrets(config trace.Config, p *node.Proxy) error {
	named := diff.References{}
	for _, typeURL := range []string{envoy.ClusterType, envoy.ListenerType} {
		for _, r := range config[typeURL] {
			if err := named.Add(typeURL, r); err != nil {
				return fmt.Errorf("read %s: %w", r.Name, err)
			}
		}
	}
	list := named[envoy.SecretType]
	if len(list) == 0 {
		return nil
	}
	name := p.Name + "." + p.Namespace
	if h.server != nil && h.server.proxies[name] != nil {
		if sent, ok := h.server.Sent(name, envoy.SecretType); ok {
			config[envoy.SecretType] = sent
			return nil
		}
	}
	if h.server != nil && (h.o.Client != nil || h.server.proxies[name] != nil) {
		// The server reads only the Secrets that connected proxies want.
		config[trace.UnknownSecrets] = lists.Map(list, func(name string) *envoy.Resource { return &envoy.Resource{Name: name} })
		return nil
	}
	var interner envoy.NameInterner
	u, err := h.translator.Get(h.Snapshot, h.translator.ResolveCohort(h.Snapshot, p), envoy.SecretType, interner.Intern(list))
	if err != nil {
		return err
	}
	config[envoy.SecretType] = slices.DeleteFunc(slices.Collect(u.All), func(r *envoy.Resource) bool { return h.forbidden(p, r.Name) })
	for _, name := range list {
		if s, ok := names.ParseSecret(name, p.Namespace); ok && h.unknown(s) {
			config[envoy.SecretType] = append(config[envoy.SecretType], &envoy.Resource{Name: name})
			config[trace.UnknownSecrets] = append(config[trace.UnknownSecrets], &envoy.Resource{Name: name})
			if note := fmt.Sprintf("whether there is a %s is not known: this user may not read it", describe(s)); !slices.Contains(h.notes, note) {
				h.notes = append(h.notes, note)
			}
		}
	}
	return nil
}

// forbidden reports whether a proxy may not have a secret because of the secret's namespace.
func (i *Inspection) forbidden(p *node.Proxy, resource string) bool {
	s, ok := names.ParseSecret(resource, p.Namespace)
	if !ok || s.Namespace == p.Namespace {
		return false
	}
	shared, _ := i.Snapshot.Shared.With(identity.ID{TrustDomain: i.Snapshot.Mesh.GetTrustDomain(), Namespace: p.Namespace,
		ServiceAccount: p.Account}, resource)
	return !shared
}

// unknown reports whether an object from which a secret may be made could not be read.
func (i *Inspection) unknown(s names.Secret) bool {
	if i.o.Cluster == nil {
		return false
	}
	return slices.ContainsFunc(s.Objects(), func(name string) bool { return i.o.Cluster.Unknown(keyOfSecret(s, name)) })
}

func keyOfSecret(s names.Secret, name string) kinds.Key {
	k := kinds.Key{Kind: kinds.Secret, Namespace: s.Namespace, Name: name}
	if s.ConfigMap {
		k.Kind = kinds.ConfigMap
	}
	return k
}

func describe(s names.Secret) string { return keyOfSecret(s, s.Name).String() }

// absence returns why a proxy is not sent a secret, and the remedy.
func (h *hops) absence(p *node.Proxy, resource string) (reason, fix string) {
	s, ok := names.ParseSecret(resource, p.Namespace)
	if !ok {
		return "no Secret and no ConfigMap has such a name", "name a Secret: NAME, or kubernetes-gateway://" + p.Namespace + "/NAME"
	}
	if h.forbidden(p, resource) {
		return fmt.Sprintf("proxies of namespace %s may not have what is in namespace %s", p.Namespace, s.Namespace),
			fmt.Sprintf("put the object into namespace %s, or name it by a Gateway of the Gateway API that a ReferenceGrant allows to", p.Namespace)
	}
	kind := kinds.SecretCredential
	if s.ConfigMap {
		kind = kinds.ConfigMapCredential
	}
	for _, name := range s.Objects() {
		o := h.Snapshot.Object(kinds.Key{Kind: kind, Namespace: s.Namespace, Name: name})
		if o == nil {
			continue
		}
		key := keyOfSecret(s, name)
		c := o.Spec.(*credentials.Credential)
		if s.CA && c.Roots != nil || !s.CA && c.Certificate != nil {
			return h.Where(key, "") + " has it, and the server does not send it to this proxy",
				fmt.Sprintf("let service account %s list the Secrets of namespace %s (a Role and a RoleBinding), and let the proxy connect to "+
					"the secure port 15012", p.Account, s.Namespace)
		}
		for _, d := range h.world.Findings() {
			if d.Code == "BadCredential" && d.Object == key.String() {
				return h.Where(key, d.Field) + ": " + d.Message, d.Fix
			}
		}
		if s.CA {
			return h.Where(key, "") + " has no CA certificates", "add them under ca.crt or cacert"
		}
		return h.Where(key, "") + " has no certificate with its key", "add tls.crt and tls.key, or cert and key"
	}
	fix = fmt.Sprintf("create it: kubectl create secret tls %s -n %s --cert=FILE --key=FILE; or name another one", s.Name, s.Namespace)
	if s.CA {
		fix = fmt.Sprintf("create it: kubectl create secret generic %s -n %s --from-file=ca.crt=FILE; or name another one", s.Name, s.Namespace)
	}
	reason = "there is no " + describe(s)
	for _, o := range h.objectsOf(keyOfSecret(s, s.Name).Kind) {
		if o.Name == s.Name && o.Cluster == "" {
			reason += ", and the proxy does not read the one of namespace " + o.Namespace
		}
	}
	return reason, fix
}

// namedBy returns the field that names a secret for a proxy, or nil if none is found.
func (i *Inspection) namedBy(p *node.Proxy, resource string) []place {
	for _, kind := range []*kinds.Kind{kinds.Gateway, kinds.DestinationRule} {
		for _, o := range i.objectsOf(kind) {
			if g, ok := o.Spec.(*networkingv1.Gateway); ok && (!kinds.GatewayReaches(o, p.Namespace, i.Snapshot.ScopedGateways) ||
				len(g.GetSelector()) > 0 && !kinds.Selects(g.GetSelector(), p.Labels)) {
				continue
			}
			for _, r := range credentials.References(o) {
				if r.Resource != resource {
					continue
				}
				if origin := i.world.Origin(o.Key); origin != nil && origin.Key != o.Key {
					return []place{{origin.Key, ""}}
				}
				return []place{{o.Key, r.Field}}
			}
		}
	}
	return nil
}
