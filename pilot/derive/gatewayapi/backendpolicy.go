package gatewayapi

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayxv1alpha1 "sigs.k8s.io/gateway-api/apisx/v1alpha1"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
)

// backendPolicy is the state of one BackendTLSPolicy or XBackendTrafficPolicy.
type backendPolicy struct {
	object   *kinds.Object
	looked   *lookups // set while it is being made
	off      bool     // whether objects of its kind have no effect here
	ignored  bool     // whether its annotation says that it has no effect here
	targets  []*policyTarget
	accepted condition // of targets that exist and that no older policy has
	findings []diag.Diagnostic

	tls      *networkingv1alpha3.ClientTLSSettings         // of a BackendTLSPolicy in force, else nil
	resolved condition                                     // whether the references of tls are resolved
	budget   *networkingv1alpha3.TrafficPolicy_RetryBudget // of an XBackendTrafficPolicy that limits retries, else nil
}

// policyTarget is one of spec.targetRefs.
type policyTarget struct {
	gatewayv1.LocalPolicyTargetReferenceWithSectionName
	field   string
	key     kinds.Key // key of the Service or the ServiceEntry
	hosts   []string
	port    uint32 // port of sectionName; 0 for all
	missing string // why it does not exist; empty if it does
	winner  string // name of an older policy that has the target; empty if this policy has it
}

// backendPolicyKinds are the kinds of policies for backends.
func backendPolicyKinds() []*kinds.Kind {
	return []*kinds.Kind{kinds.BackendTLSPolicy, kinds.XBackendTrafficPolicy}
}

// specOfPolicy returns the spec of a policy, for comparisons.
func specOfPolicy(o *kinds.Object) any {
	if o.Kind == kinds.BackendTLSPolicy {
		return tlsSpec(o)
	}
	return trafficSpec(o)
}

// statusOfPolicy returns the status that a policy has.
func statusOfPolicy(o *kinds.Object) gatewayv1.PolicyStatus {
	if o.Kind == kinds.BackendTLSPolicy {
		return o.Spec.(*gatewayv1.BackendTLSPolicy).Status
	}
	return o.Spec.(*gatewayxv1alpha1.XBackendTrafficPolicy).Status
}

// targetsOf returns spec.targetRefs of a policy.
func targetsOf(o *kinds.Object) []gatewayv1.LocalPolicyTargetReferenceWithSectionName {
	if o.Kind == kinds.BackendTLSPolicy {
		return tlsSpec(o).TargetRefs
	}
	var list []gatewayv1.LocalPolicyTargetReferenceWithSectionName
	for _, ref := range trafficSpec(o).TargetRefs {
		list = append(list, gatewayv1.LocalPolicyTargetReferenceWithSectionName{LocalPolicyTargetReference: ref})
	}
	return list
}

// targetedService is a Service or a ServiceEntry that policies target.
type targetedService struct {
	policies map[*backendPolicy]struct{}
	rules    []derive.Derived
	secured  bool // whether the rules have TLS settings
}

// Keys of parts.
type (
	rulesOf  kinds.Key // key of the DestinationRules of a Service or a ServiceEntry
	policyOf kinds.Key // key of the status of a policy
)

// clientRulesOf is the key of the DestinationRules of a target for the proxies of a Gateway.
type clientRulesOf struct{ service, gateway kinds.Key }

// makePolicies makes the policies for backends.
func (r *run) makePolicies() {
	for _, kind := range backendPolicyKinds() {
		for key, rebuild := range r.unitsDue[kind] {
			r.remakePolicy(key, rebuild)
		}
	}
}

// remakePolicy makes a policy. If rebuild is false, it makes the policy only if more than its status has changed.
func (r *run) remakePolicy(key kinds.Key, rebuild bool) {
	o, p := r.objects[key.Kind][key], r.policies[key]
	r.policiesDue[key] = true
	if !rebuild && p != nil && o != nil && sameButStatus(p.object, o, specOfPolicy) {
		p.object = o
		return
	}
	if p != nil {
		for _, t := range p.targets {
			if s := r.targeted[t.key]; s != nil {
				delete(s.policies, p)
				r.targetedDue[t.key] = true
			}
		}
		delete(r.policies, key)
	}
	if o == nil {
		r.read(key, nil)
		r.put(key, derive.Part{})
		return
	}
	l := &lookups{run: r}
	p = makePolicy(l, o)
	r.read(key, l)
	r.policies[key] = p
	part := derive.Part{Findings: p.findings}
	if name := p.tls.GetCredentialName(); name != "" && name != names.NoCredential {
		resource, _ := names.CACredential(name)
		part.Shared = []kinds.SharedSecret{{Resource: resource}} // every client of the service needs it
	}
	r.put(key, part)
	for _, t := range p.targets {
		if t.missing == "" {
			if r.targeted[t.key] == nil {
				r.targeted[t.key] = &targetedService{policies: map[*backendPolicy]struct{}{}}
			}
			r.targeted[t.key].policies[p] = struct{}{}
			r.targetedDue[t.key] = true
		}
	}
}

// makeTargeted makes the DestinationRules of the services that policies target. Where two policies set the same for a
// port of a service, the older one is in force.
func (r *run) makeTargeted() {
	for of := range r.certificatesDue {
		for key, s := range r.targeted {
			var part derive.Part
			if g := r.certified[of]; g != nil {
				part.Objects = g.clientRules(s)
			}
			r.put(clientRulesOf{key, of}, part)
		}
	}
	for key := range r.targetedDue {
		s, part := r.targeted[key], derive.Part{}
		var claims []claim
		for _, p := range slices.SortedFunc(maps.Keys(s.policies), compareAges) {
			r.policiesDue[p.object.Key] = true
			for _, t := range p.targets {
				if t.key != key || t.missing != "" {
					continue
				}
				c := claim{p, t}
				t.winner = ""
				if i := slices.IndexFunc(claims, c.conflicts); i >= 0 {
					t.winner = claims[i].policy.object.Name
					part.Findings = append(part.Findings, p.finding(t.field, diag.Warning, p.elsewhere(),
						p.object.Kind.Name+" "+t.winner+" targets the same: this one has no effect for it"))
					continue
				}
				claims = append(claims, c)
			}
		}
		claims = slices.DeleteFunc(claims, claim.idle)
		if s.rules, s.secured = nil, slices.ContainsFunc(claims, claim.secures); len(claims) > 0 {
			s.rules = destinationRules(key, claims)
		}
		if len(s.policies) == 0 {
			delete(r.targeted, key)
		}
		part.Objects = s.rules
		r.put(rulesOf(key), part)
		for _, g := range r.certified {
			r.put(clientRulesOf{key, g.object.Key}, derive.Part{Objects: g.clientRules(s)})
		}
	}
}

// makePolicyStatuses makes the statuses of the policies that are due, and of policies for services to which the set of
// Gateways has changed.
func (r *run) makePolicyStatuses() {
	for x, was := range r.led {
		if s := r.targeted[x.service]; s != nil && was != (r.backends[x.service][x.gateway] > 0) {
			for p := range s.policies {
				if p.tls != nil { // others have no Gateways in their status
					r.policiesDue[p.object.Key] = true
				}
			}
		}
	}
	for key := range r.policiesDue {
		var part derive.Part
		if p := r.policies[key]; p != nil && !p.off {
			part.Statuses = []*derive.Status{r.policyStatus(p)}
		}
		r.put(policyOf(key), part)
	}
}

// compareAges orders policies by age, by name and by kind.
func compareAges(a, b *backendPolicy) int {
	return cmp.Or(older(a.object, b.object), cmp.Compare(a.object.Kind.Name, b.object.Kind.Name))
}

// claim is a target of a policy, which is in force unless an older one conflicts.
type claim struct {
	policy *backendPolicy
	target *policyTarget
}

// secures reports whether the claim sets TLS.
func (c claim) secures() bool { return c.policy.tls != nil }

// idle reports whether the claim sets nothing.
func (c claim) idle() bool { return c.policy.tls == nil && c.policy.budget == nil }

// conflicts reports whether two claims to a service set the same. A claim that sets nothing conflicts with none.
func (c claim) conflicts(other claim) bool {
	return !c.idle() && !other.idle() && c.secures() == other.secures() && c.target.port == other.target.port
}

func (p *backendPolicy) finding(field string, severity diag.Severity, fix, message string) diag.Diagnostic {
	code := "BackendTLSPolicy"
	if p.object.Kind == kinds.XBackendTrafficPolicy {
		code = "XBackendTrafficPolicy"
	}
	return finding(p.object, severity, code, field, fix, message)
}

func (p *backendPolicy) found(field string, severity diag.Severity, fix, message string) {
	p.findings = append(p.findings, p.finding(field, severity, fix, message))
}

// elsewhere returns the fix of a target that an older policy has.
func (p *backendPolicy) elsewhere() string {
	if p.object.Kind == kinds.XBackendTrafficPolicy {
		return "target another Service"
	}
	return "target another Service, or another port of it"
}

func makePolicy(looked *lookups, o *kinds.Object) *backendPolicy {
	p := &backendPolicy{object: o, looked: looked}
	defer func() { p.looked = nil }()
	if p.off = o.Kind.IsAlpha() && !looked.run.o.Alpha; p.off {
		p.found("", diag.Info, "set "+names.AlphaVariable+"=true in the environment of the control plane",
			"it has no effect: the control plane does not use alpha parts of the Gateway API")
		return p
	}
	refs := targetsOf(o)
	if p.ignored = strings.EqualFold(o.Annotations[kinds.AnnotationIgnorePolicy], "true"); p.ignored {
		for _, ref := range refs {
			p.targets = append(p.targets, &policyTarget{LocalPolicyTargetReferenceWithSectionName: ref, missing: "the policy is ignored"})
		}
		return p
	}
	p.accepted = condition{status: "True", reason: string(gatewayv1.PolicyReasonAccepted), message: "Configuration is valid"}
	if o.Kind == kinds.BackendTLSPolicy {
		p.secure()
	} else {
		p.limit()
	}
	for i, ref := range refs {
		t := &policyTarget{LocalPolicyTargetReferenceWithSectionName: ref, field: fmt.Sprintf("spec.targetRefs[%d]", i)}
		p.find(t)
		if t.missing != "" {
			p.found(t.field, diag.Warning, "name "+p.targetable()+" of the namespace", t.missing+": the policy has no effect for it")
		}
		p.targets = append(p.targets, t)
	}
	return p
}

// targetable says what the policy may target.
func (p *backendPolicy) targetable() string {
	if p.object.Kind == kinds.XBackendTrafficPolicy {
		return "a Service"
	}
	return "a Service or a ServiceEntry"
}

// find resolves the object that a targetRef names.
func (p *backendPolicy) find(t *policyTarget) {
	section := ""
	if t.SectionName != nil {
		section = string(*t.SectionName)
	}
	notFound := func() string {
		return fmt.Sprintf("reference %s/%s (of kind %s) not found", p.object.Namespace, t.Name, t.Kind)
	}
	ports := map[string]uint32{}
	switch {
	case t.Group == "" && t.Kind == "Service":
		t.key = kinds.Key{Kind: kinds.Service, Namespace: p.object.Namespace, Name: string(t.Name)}
		o := p.looked.object(t.key)
		if o == nil {
			t.missing = notFound()
			return
		}
		t.hosts = []string{t.key.Name + "." + t.key.Namespace + ".svc." + p.looked.run.o.Domain}
		for _, port := range o.Spec.(*corev1.Service).Spec.Ports {
			ports[port.Name] = uint32(port.Port)
		}
	case string(t.Group) == kinds.ServiceEntry.Group && t.Kind == "ServiceEntry" && p.object.Kind == kinds.XBackendTrafficPolicy:
		t.missing = "unsupported reference kind: ServiceEntry"
		return
	case string(t.Group) == kinds.ServiceEntry.Group && t.Kind == "ServiceEntry":
		t.key = kinds.Key{Kind: kinds.ServiceEntry, Namespace: p.object.Namespace, Name: string(t.Name)}
		o := p.looked.object(t.key)
		if o == nil {
			t.missing = notFound()
			return
		}
		spec := o.Spec.(*networkingv1.ServiceEntry)
		t.hosts = slices.Clone(spec.Hosts)
		for _, port := range spec.Ports {
			ports[port.Name] = port.Number
		}
	default:
		t.missing = "unsupported kind " + string(t.Kind)
		return
	}
	if section == "" {
		return
	}
	if t.port = ports[section]; t.port == 0 {
		t.missing = fmt.Sprintf("%s %s/%s has no port named %q", t.Kind, p.object.Namespace, t.Name, section)
	}
}

// destinationRules returns a DestinationRule for each host of a target. A policy that names a port applies to that port
// only. A retry budget applies to all ports.
func destinationRules(key kinds.Key, claims []claim) (list []derive.Derived) {
	policy := &networkingv1alpha3.TrafficPolicy{}
	for _, c := range claims {
		switch {
		case !c.secures():
			policy.RetryBudget = c.policy.budget
		case c.target.port == 0:
			policy.Tls = c.policy.tls
		default:
			policy.PortLevelSettings = append(policy.PortLevelSettings, &networkingv1alpha3.TrafficPolicy_PortTrafficPolicy{
				Port: &networkingv1alpha3.PortSelector{Number: c.target.port}, Tls: c.policy.tls,
			})
		}
	}
	slices.SortFunc(policy.PortLevelSettings, func(a, b *networkingv1alpha3.TrafficPolicy_PortTrafficPolicy) int {
		return cmp.Compare(a.Port.Number, b.Port.Number)
	})
	first := claims[0]
	for i, host := range first.target.hosts {
		name := key.Name + "~" + suffix
		if key.Kind == kinds.ServiceEntry {
			name = key.Name + "~" + strings.ReplaceAll(host, ".", "-") + "~" + suffix
			if slices.ContainsFunc(list, func(d derive.Derived) bool { return d.Object.Name == name }) { // a.b-c and a-b.c give the same name
				name = fmt.Sprintf("%s~%d~%s", key.Name, i, suffix)
			}
		}
		list = append(list, derive.Derived{
			Object: &kinds.Object{
				Key: kinds.Key{Kind: kinds.DestinationRule, Namespace: key.Namespace, Name: name}, Created: first.policy.object.Created,
				Extra: &kinds.RuleExtra{},
				Spec:  &networkingv1.DestinationRule{Host: host, ExportTo: []string{"*"}, TrafficPolicy: policy},
			},
			Origin: first.policy.object.Key,
		})
	}
	return list
}
