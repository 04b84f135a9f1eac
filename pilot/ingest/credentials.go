package ingest

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	networkingv1 "istio.io/api/networking/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/credentials"
	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// credentialStore turns the Secrets and ConfigMaps that Gateways and DestinationRules name into credentials. If a part
// of a new version is unusable, the last good version of that part stays in force. The goroutine that commits owns the
// store.
type credentialStore struct {
	now        func() time.Time
	references map[kinds.Key][]credentials.Reference // by the object that names them
	names      map[string]int                        // number of references to Secrets and ConfigMaps, by name
	changed    bool                                  // references have changed since frozen
	held       map[string]map[kinds.Key]*heldCredential
	errors     int // number of object versions with an unusable part
}

// heldCredential is a Secret or a ConfigMap, and the credential in force while an object names it.
type heldCredential struct {
	source   *kinds.Object // nil if the object was deleted
	parsed   *kinds.Object // the source that was parsed last
	inForce  *kinds.Object // the credential, nil if there is none
	problems []diag.Diagnostic
}

func newCredentialStore(now func() time.Time) *credentialStore {
	return &credentialStore{
		now: now, references: map[kinds.Key][]credentials.Reference{}, names: map[string]int{},
		held: map[string]map[kinds.Key]*heldCredential{},
	}
}

// apply applies changes. It returns the changes of credentials, and reports whether findings may have changed.
func (s *credentialStore) apply(batch []kinds.Change) (out []kinds.Change, looked bool) {
	dirty := map[string]bool{}
	for _, c := range batch {
		switch c.Kind {
		case kinds.Gateway, kinds.DestinationRule:
			s.refer(c, dirty)
		case kinds.Secret, kinds.ConfigMap:
			s.hold(c)
			dirty[c.Name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(dirty)) {
		for _, key := range slices.SortedFunc(maps.Keys(s.held[name]), compareKeys) {
			h := s.held[name][key]
			was := h.inForce
			if h.update(s.names[name] > 0, s.now()) {
				s.errors++
			}
			if h.inForce != was {
				out = append(out, kinds.Change{Key: credentialKey(key), Object: h.inForce})
			}
			if h.source == nil {
				delete(s.held[name], key)
			}
		}
		if len(s.held[name]) == 0 {
			delete(s.held, name)
		}
	}
	return out, len(dirty) > 0 || s.changed
}

func compareKeys(a, b kinds.Key) int {
	return cmp.Or(
		cmp.Compare(a.Kind.Name, b.Kind.Name), cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Name, b.Name),
	)
}

func credentialKey(k kinds.Key) kinds.Key {
	if k.Kind == kinds.ConfigMap {
		k.Kind = kinds.ConfigMapCredential
	} else {
		k.Kind = kinds.SecretCredential
	}
	return k
}

// refer records the names that an object refers to. It adds names to dirty whose first reference came or last one went.
func (s *credentialStore) refer(c kinds.Change, dirty map[string]bool) {
	var now []credentials.Reference
	if c.Object != nil {
		now = credentials.References(c.Object)
	}
	was := s.references[c.Key]
	if slices.Equal(now, was) {
		return
	}
	s.changed = true
	count := func(list []credentials.Reference, by int) {
		for _, r := range list {
			for _, name := range r.Names() {
				had := s.names[name] > 0
				if s.names[name] += by; s.names[name] == 0 {
					delete(s.names, name)
				}
				if had != (s.names[name] > 0) {
					dirty[name] = true
				}
			}
		}
	}
	count(now, 1)
	count(was, -1)
	if delete(s.references, c.Key); now != nil {
		s.references[c.Key] = now
	}
}

func (s *credentialStore) hold(c kinds.Change) {
	if s.held[c.Name] == nil {
		s.held[c.Name] = map[kinds.Key]*heldCredential{}
	}
	if s.held[c.Name][c.Key] == nil {
		s.held[c.Name][c.Key] = &heldCredential{}
	}
	s.held[c.Name][c.Key].source = c.Object
}

// update parses a Secret or a ConfigMap if an object names it and it has changed. If no object names it, update drops
// the credential. It reports whether the new version has an unusable part.
func (h *heldCredential) update(named bool, now time.Time) (bad bool) {
	if h.source == nil || !named {
		*h = heldCredential{source: h.source}
		return false
	}
	if h.parsed == h.source {
		return false
	}
	h.parsed = h.source
	var p credentials.Parsed
	switch spec := h.source.Spec.(type) {
	case *corev1.Secret:
		p = credentials.OfSecret(spec, now)
	case *corev1.ConfigMap:
		p = credentials.OfConfigMap(spec, now)
	}
	var last credentials.Credential
	if h.inForce != nil {
		last = *h.inForce.Spec.(*credentials.Credential)
	}
	next := p.Credential
	if p.BadCertificate != nil || reflect.DeepEqual(next.Certificate, last.Certificate) {
		next.Certificate = last.Certificate
	}
	if p.BadRoots != nil || reflect.DeepEqual(next.Roots, last.Roots) {
		next.Roots = last.Roots
	}
	h.problems = badCredentials(h.source, p, next)
	if h.inForce == nil || next != last {
		h.inForce = &kinds.Object{Key: credentialKey(h.source.Key), Spec: &next}
	}
	return p.BadCertificate != nil || p.BadRoots != nil
}

// badCredentials returns the findings about a Secret or a ConfigMap. inForce is the credential that proxies are sent.
func badCredentials(o *kinds.Object, p credentials.Parsed, inForce credentials.Credential) (list []diag.Diagnostic) {
	add := func(severity diag.Severity, bad *credentials.Problem, instead string) {
		d := diag.Diagnostic{
			Severity: severity, Code: "BadCredential", Object: o.String(), Field: bad.Field(), Message: bad.Message + instead, Fix: bad.Fix,
		}
		list = append(list, d.At(o.Position))
	}
	const stays, none = ": the last good one stays in force", ": proxies are sent none" + waitsForSecret
	if p.BadCertificate != nil {
		add(diag.Error, p.BadCertificate, map[bool]string{true: stays, false: none}[inForce.Certificate != nil])
	}
	if p.BadRoots != nil {
		add(diag.Error, p.BadRoots, map[bool]string{true: stays, false: none}[inForce.Roots != nil])
	}
	for _, bad := range p.Remarks {
		add(diag.Warning, bad, "")
	}
	if len(list) == 0 && p.Credential == (credentials.Credential{}) {
		list = append(list, diag.Diagnostic{
			Severity: diag.Warning, Code: "BadCredential", Object: o.String(), Field: "data",
			Message: "it has none of the keys that TLS needs" + none,
			Fix:     "add tls.crt and tls.key, or cert and key, and for CA certificates ca.crt or cacert",
		}.At(o.Position))
	}
	return list
}

// findings returns the findings about Secrets and ConfigMaps that objects name, sorted.
func (s *credentialStore) findings() []diag.Diagnostic {
	var list []diag.Diagnostic
	for _, name := range slices.Sorted(maps.Keys(s.held)) {
		for _, key := range slices.SortedFunc(maps.Keys(s.held[name]), compareKeys) {
			list = append(list, s.held[name][key].problems...)
		}
	}
	return list
}

// UnusableSecret reports whether proxies are not sent what a Secret says, because it has an error: they keep the last
// good content, or have none.
func (w *World) UnusableSecret(k kinds.Key) bool {
	name := k.String()
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.findings["credentials"], func(d diag.Diagnostic) bool { return d.Severity == diag.Error && d.Object == name })
}

// lackingPart is a field that names a Secret or a ConfigMap without the part of a credential that it needs.
type lackingPart struct {
	object    kinds.Key
	reference credentials.Reference
	source    kinds.Key
}

// lacking returns the fields whose objects are there and can be read, and have not what the fields need.
func (s *credentialStore) lacking() (list []lackingPart) {
	for object, references := range s.references {
		for _, r := range references {
			var source *kinds.Object
			has := false
			for _, name := range r.Names() {
				for _, h := range s.held[name] {
					if h.source == nil || h.inForce == nil {
						continue
					}
					c := h.inForce.Spec.(*credentials.Credential)
					has = has || len(h.problems) > 0 || r.Own && c.Certificate != nil || !r.Own && c.Roots != nil
					if source == nil || compareKeys(h.source.Key, source.Key) < 0 {
						source = h.source
					}
				}
			}
			if source != nil && !has {
				list = append(list, lackingPart{object, r, source.Key})
			}
		}
	}
	slices.SortFunc(list, func(a, b lackingPart) int {
		return cmp.Or(compareKeys(a.object, b.object), cmp.Compare(a.reference.Field, b.reference.Field))
	})
	return list
}

// lackingCredentials returns a finding for each field that names a Secret or a ConfigMap without the part that it
// needs.
func (w *World) lackingCredentials() (list []diag.Diagnostic) {
	w.mu.Lock()
	lacking := w.lacking
	w.mu.Unlock()
	for _, l := range lacking {
		if w.originOf(l.object) != nil {
			continue // the stage that derived the object reports it
		}
		d := diag.Diagnostic{
			Severity: diag.Error, Code: "BadCredential", Object: l.object.String(), Field: l.reference.Field,
			Message: l.source.String() + " has no CA certificates, which verify the certificates of the other end: connections are refused",
			Fix:     "add ca.crt or cacert to it",
		}
		if l.reference.Own {
			d.Message = l.source.String() + " has CA certificates only, and no certificate with a key: connections are refused"
			d.Fix = "add tls.crt and tls.key, or name another one"
		}
		if l.object.Kind == kinds.Gateway {
			d.Message += waitsForSecret
		}
		if o := w.Object(l.object); o != nil {
			d = d.At(o.Position)
		}
		list = append(list, d)
	}
	return w.Located(list)
}

// servedUntil is a part of a credential that proxies may be sent and that expires, and the object it comes from.
type servedUntil struct {
	source       *kinds.Object
	expires      time.Time
	what, effect string
	fix          string
}

// served returns the parts of credentials that are in force and expire, sorted.
func (s *credentialStore) served() (list []servedUntil) {
	for _, name := range slices.Sorted(maps.Keys(s.held)) {
		for _, key := range slices.SortedFunc(maps.Keys(s.held[name]), compareKeys) {
			h := s.held[name][key]
			if h.source == nil || h.inForce == nil {
				continue
			}
			held := h.inForce.Spec.(*credentials.Credential)
			if c := held.Certificate; c != nil {
				list = append(list, servedUntil{h.source, c.Expires, "the certificate that proxies are sent", "clients refuse it", "renew it"})
			}
			if r := held.Roots; r != nil {
				list = append(list, servedUntil{
					h.source, r.Expires, "the last of the CA certificates that proxies are sent", "they refuse every certificate", "renew them",
				})
				if !r.Renewal.IsZero() {
					list = append(list, servedUntil{
						h.source, r.Renewal, "a list of revoked certificates that proxies are sent", "they refuse every certificate of its issuer",
						"replace it with a new one",
					})
				}
			}
		}
	}
	return list
}

// expiredCertificates returns a finding for each part that expired while it is in force.
func expiredCertificates(served []servedUntil, now time.Time) (list []diag.Diagnostic) {
	for _, c := range served {
		if now.After(c.expires) {
			list = append(list, diag.Diagnostic{
				Severity: diag.Error, Code: "BadCredential", Object: c.source.String(), Field: "data",
				Message: c.what + " expired at " + c.expires.UTC().Format(time.RFC3339) + ": " + c.effect, Fix: c.fix,
			}.At(c.source.Position))
		}
	}
	return list
}

// unservedCredentials returns a finding for each field that names neither a Secret nor a ConfigMap, and for each
// certificate field whose name can only provide CA certificates.
func (w *World) unservedCredentials() (list []diag.Diagnostic) {
	byObject := w.References().byObject
	for _, key := range slices.SortedFunc(maps.Keys(byObject), compareKeys) {
		if w.originOf(key) != nil {
			continue // the stage that derived the object reports it
		}
		for _, r := range byObject[key] {
			if len(r.Names()) > 0 && !r.Misnamed() ||
				len(list) > 0 && list[len(list)-1].Object == key.String() && list[len(list)-1].Field == r.Field {
				continue
			}
			d := diag.Diagnostic{
				Severity: diag.Warning, Code: "UnsupportedField", Object: key.String(), Field: r.Field,
				Message: "it names no Secret and no ConfigMap: certificates come from nothing else, and connections that need them are refused",
				Fix: "name a Secret: NAME, kubernetes://NAME, kubernetes-gateway://NAMESPACE/NAME, " +
					"or for CA certificates configmap://NAMESPACE/NAME",
			}
			if r.Resource == names.NoCredential {
				d.Fix += "; if the object has no such field, correct the error in its TLS settings that another finding names"
			}
			if r.Misnamed() {
				d.Message = "a name that ends in -cacert, or of a ConfigMap, provides CA certificates only: " +
					"connections that need a certificate are refused"
				d.Fix = "give the Secret another name"
			}
			if o := w.Object(key); o != nil {
				d = d.At(o.Position)
			}
			list = append(list, d)
		}
	}
	return w.Located(list)
}

// References are the Secrets and ConfigMaps that objects name. It is immutable.
type References struct {
	byObject map[kinds.Key][]credentials.Reference
	names    map[string]bool
}

// Has reports whether an object names a Secret or a ConfigMap with that name.
func (n *References) Has(name string) bool { return n.names[name] }

// frozen returns an immutable copy of the references. It returns last if they have not changed.
func (s *credentialStore) frozen(last *References) *References {
	if !s.changed {
		return last
	}
	s.changed = false
	n := &References{byObject: maps.Clone(s.references), names: make(map[string]bool, len(s.names))}
	for name := range s.names {
		n.names[name] = true
	}
	return n
}

// References returns the Secrets and ConfigMaps that objects name. The pointer changes only if they change.
func (w *World) References() *References {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.referenced
}

// missingIn returns a finding for each field that names a Secret or ConfigMap for the proxies of a namespace of a
// cluster, if every object that the name can mean is missing.
func (w *World) missingIn(cluster, namespace string, missing map[kinds.Key]bool) []diag.Diagnostic {
	var list []diag.Diagnostic
	for _, key := range slices.SortedFunc(maps.Keys(w.References().byObject), compareKeys) {
		absent := func(k kinds.Key) bool { return missing[k] }
		list = append(list, w.missingCredentials(key, cluster, namespace, diag.Error, absent, nil)...)
	}
	return w.Located(list)
}

// namespacesByName are the namespaces that have a Secret or a ConfigMap, by its key without a namespace.
type namespacesByName map[kinds.Key][]string

// missingCredentials returns the findings of missingIn for one object.
func (w *World) missingCredentials(
	key kinds.Key, cluster, namespace string, severity diag.Severity, absent func(kinds.Key) bool, all namespacesByName,
) (list []diag.Diagnostic) {
	o := w.Object(key)
	for _, r := range w.References().byObject[key] {
		s, ok := names.ParseSecret(r.Resource, namespace)
		kind := kinds.Secret
		if s.ConfigMap {
			kind = kinds.ConfigMap
		}
		if !ok || slices.ContainsFunc(s.Objects(), func(name string) bool {
			return !absent(kinds.Key{Kind: kind, Cluster: cluster, Namespace: s.Namespace, Name: name})
		}) {
			continue
		}
		elsewhere := all[kinds.Key{Kind: kind, Cluster: cluster, Name: s.Name}]
		if w.o.partial() && len(elsewhere) == 0 {
			continue
		}
		unread := ""
		if len(elsewhere) > 0 {
			unread = ", and the proxies do not read the one of namespace " + strings.Join(elsewhere, ", ")
		}
		d := diag.Diagnostic{
			Severity: severity, Code: "IST0101", Object: key.String(), Field: r.Field,
			Message: fmt.Sprintf(
				"%s does not exist%s: connections that need it are refused",
				kinds.Key{Kind: kind, Cluster: cluster, Namespace: s.Namespace, Name: s.Name}, unread,
			),
			Fix: "create it, or name another one",
		}
		if o != nil && o.Kind == kinds.Gateway {
			d.Message += waitsForSecret
		}
		if origin := w.originOf(key); origin != nil {
			d.Message = fmt.Sprintf("%s, which is made of it: %s: %s", key, d.Field, d.Message)
			d.Object, d.Field = origin.String(), ""
			d = d.At(origin.Position)
		} else if o != nil {
			d = d.At(o.Position)
		}
		if len(list) == 0 || list[len(list)-1] != d {
			list = append(list, d)
		}
	}
	return list
}

// waitsForSecret says what else a missing secret prevents. Envoy waits for it as long as its initial_fetch_timeout is,
// whose default is 15 seconds, before a new or changed listener takes the place of the last one.
const waitsForSecret = ", and each change of a gateway's listener that needs it takes 15 seconds, for its other hosts too"

// absentCredentials returns the findings of missingIn. It checks the namespaces of the Pods that a Gateway selects, or
// else the Gateway's own. A name in a DestinationRule is missing if no namespace of a gateway's Pods has it. If the
// objects are only a part of a mesh, the Pods must be known, and another namespace must have an object of that name.
// Without any Service they are always a part, and all findings are warnings.
func (w *World) absentCredentials(objects []*kinds.Object) []diag.Diagnostic {
	if w.o.Client != nil {
		return nil
	}
	there, all := map[kinds.Key]bool{}, namespacesByName{}
	for _, o := range objects {
		if o.Kind == kinds.Secret || o.Kind == kinds.ConfigMap {
			there[o.Key] = true
			anywhere := kinds.Key{Kind: o.Kind, Cluster: o.Cluster, Name: o.Name}
			all[anywhere] = append(all[anywhere], o.Namespace)
		}
	}
	for _, list := range all {
		slices.Sort(list)
	}
	absent := func(k kinds.Key) bool { return !there[k] && (w.o.Cluster == nil || !w.o.Cluster.Unknown(k)) }
	return w.credentialsWithout(objects, absent, all)
}

// AbsentCredentials returns the Secrets and ConfigMaps that objects name and that are not among the objects.
func (w *World) AbsentCredentials() []kinds.Key {
	objects := w.Objects()
	there, absent := map[kinds.Key]bool{}, map[kinds.Key]bool{}
	for _, o := range objects {
		there[o.Key] = o.Kind == kinds.Secret || o.Kind == kinds.ConfigMap
	}
	w.credentialsWithout(objects, func(k kinds.Key) bool {
		absent[k] = absent[k] || !there[k]
		return true // makes the caller try every name
	}, nil)
	return slices.SortedFunc(func(yield func(kinds.Key) bool) {
		for k, is := range absent {
			if is && !yield(k) {
				return
			}
		}
	}, compareKeys)
}

// credentialsWithout returns a finding for each credential name of an object if every object that it can mean is
// absent.
func (w *World) credentialsWithout(objects []*kinds.Object, absent func(kinds.Key) bool, all namespacesByName) (list []diag.Diagnostic) {
	named := w.References().byObject
	if len(named) == 0 {
		return nil
	}
	severity := diag.Warning
	var pods []*kinds.Object
	for _, o := range objects {
		switch o.Kind {
		case kinds.Pod:
			pods = append(pods, o)
		case kinds.Service, kinds.ServiceEntry:
			if !w.o.partial() {
				severity = diag.Error
			}
		}
	}
	ofGateways := map[string]bool{} // namespaces of gateway Pods
	var rules []*kinds.Object
	for _, key := range slices.SortedFunc(maps.Keys(named), compareKeys) {
		o := w.Object(key)
		switch {
		case o == nil:
			continue
		case o.Kind == kinds.DestinationRule:
			rules = append(rules, o)
			continue
		}
		namespaces := map[string]bool{}
		for _, p := range pods {
			if kinds.GatewayReaches(o, p.Namespace, w.o.ScopedGateways) && kinds.Selects(o.Spec.(*networkingv1.Gateway).Selector, p.Labels) {
				namespaces[p.Namespace], ofGateways[p.Namespace] = true, true
			}
		}
		if len(namespaces) == 0 && !w.o.partial() {
			namespaces[o.Namespace] = true
		}
		for _, namespace := range slices.Sorted(maps.Keys(namespaces)) {
			list = append(list, w.missingCredentials(key, "", namespace, severity, absent, all)...)
		}
	}
	for _, o := range rules {
		list = append(list, w.absentOfRule(o, slices.Sorted(maps.Keys(ofGateways)), severity, absent, all)...)
	}
	return list
}

// absentOfRule returns the findings about the credentials of a DestinationRule. A rule with a workload selector applies
// in its own namespace. Any gateway may use another rule, so a credential that is missing for only some gateways is no
// finding.
func (w *World) absentOfRule(
	o *kinds.Object, ofGateways []string, severity diag.Severity, absent func(kinds.Key) bool, all namespacesByName,
) []diag.Diagnostic {
	selects := o.Spec.(*networkingv1.DestinationRule).WorkloadSelector != nil
	switch {
	case selects, len(ofGateways) == 0 && !w.o.partial():
		ofGateways = []string{o.Namespace}
	case len(ofGateways) == 0:
		return nil
	}
	missing := func(namespace string) []diag.Diagnostic {
		return w.missingCredentials(o.Key, "", namespace, severity, absent, all)
	}
	list := missing(ofGateways[0])
	for _, namespace := range ofGateways[1:] {
		fields := lists.SetOf(missing(namespace), func(d diag.Diagnostic) string { return d.Field })
		list = slices.DeleteFunc(list, func(d diag.Diagnostic) bool { return !fields[d.Field] })
	}
	return list
}
