package gatewayapi

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	networkingv1 "istio.io/api/networking/v1"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/api/credentials"
	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/derive"
)

// backendTLS is the state of one BackendTLSPolicy.
type backendTLS struct {
	object   *kinds.Object
	looked   *lookups // set while it is being made
	ignored  bool     // whether its annotation says that it has no effect here
	targets  []*tlsTarget
	tls      *networkingv1alpha3.ClientTLSSettings
	accepted condition // of targets that exist and that no older policy has
	resolved condition
	findings []diag.Diagnostic
}

// tlsTarget is one of spec.targetRefs.
type tlsTarget struct {
	gatewayv1.LocalPolicyTargetReferenceWithSectionName
	field   string
	key     kinds.Key // key of the Service or the ServiceEntry
	hosts   []string
	port    uint32 // port of sectionName; 0 for all
	missing string // why it does not exist; empty if it does
	winner  string // name of an older policy that has the target; empty if this policy has it
}

func policySpec(o *kinds.Object) *gatewayv1.BackendTLSPolicySpec {
	return &o.Spec.(*gatewayv1.BackendTLSPolicy).Spec
}

// securedService is a Service or a ServiceEntry that policies target.
type securedService struct {
	policies map[*backendTLS]struct{}
	rules    []derive.Derived
}

// Keys of parts.
type (
	rulesOf  kinds.Key // key of the DestinationRules of a Service or a ServiceEntry
	policyOf kinds.Key // key of the status of a policy
)

// clientRulesOf is the key of the DestinationRules of a target for the proxies of a Gateway.
type clientRulesOf struct{ service, gateway kinds.Key }

// makePolicies makes the BackendTLSPolicies.
func (r *run) makePolicies() {
	for key, rebuild := range r.unitsDue[kinds.BackendTLSPolicy] {
		o, p := r.objects[kinds.BackendTLSPolicy][key], r.policies[key]
		r.policiesDue[key] = true
		if !rebuild && p != nil && o != nil && sameButStatus(p.object, o, func(o *kinds.Object) any { return policySpec(o) }) {
			p.object = o
			continue
		}
		if p != nil {
			for _, t := range p.targets {
				if s := r.secured[t.key]; s != nil {
					delete(s.policies, p)
					r.securedDue[t.key] = true
				}
			}
			delete(r.policies, key)
		}
		if o == nil {
			r.read(key, nil)
			r.put(key, derive.Part{})
			continue
		}
		l := &lookups{run: r}
		p = makePolicy(l, o)
		r.read(key, l)
		r.policies[key] = p
		part := derive.Part{Findings: p.findings}
		if p.tls.CredentialName != "" && p.tls.CredentialName != names.NoCredential {
			resource, _ := names.CACredential(p.tls.CredentialName)
			part.Shared = []kinds.SharedSecret{{Resource: resource}} // every client of the service needs it
		}
		r.put(key, part)
		for _, t := range p.targets {
			if t.missing != "" {
				continue
			}
			if r.secured[t.key] == nil {
				r.secured[t.key] = &securedService{policies: map[*backendTLS]struct{}{}}
			}
			r.secured[t.key].policies[p] = struct{}{}
			r.securedDue[t.key] = true
		}
	}
}

// makeSecured makes the DestinationRules of the services that policies target. If two policies target one port of a
// service, the older one is in force.
func (r *run) makeSecured() {
	for of := range r.certificatesDue {
		for key, s := range r.secured {
			var part derive.Part
			if g := r.certified[of]; g != nil {
				part.Objects = g.clientRules(s.rules)
			}
			r.put(clientRulesOf{key, of}, part)
		}
	}
	for key := range r.securedDue {
		s, part := r.secured[key], derive.Part{}
		var claims []claim
		for _, p := range slices.SortedFunc(maps.Keys(s.policies), func(a, b *backendTLS) int { return older(a.object, b.object) }) {
			r.policiesDue[p.object.Key] = true
			for _, t := range p.targets {
				if t.key != key || t.missing != "" {
					continue
				}
				t.winner = ""
				if i := slices.IndexFunc(claims, func(c claim) bool { return c.target.port == t.port }); i >= 0 {
					t.winner = claims[i].policy.object.Name
					part.Findings = append(part.Findings, p.finding(t.field, diag.Warning, "target another Service, or another port of it",
						"BackendTLSPolicy "+t.winner+" targets the same: this one has no effect for it"))
					continue
				}
				claims = append(claims, claim{p, t})
			}
		}
		if s.rules = nil; len(claims) > 0 {
			s.rules = destinationRules(key, claims)
		} else {
			delete(r.secured, key)
		}
		part.Objects = s.rules
		r.put(rulesOf(key), part)
		for _, g := range r.certified {
			r.put(clientRulesOf{key, g.object.Key}, derive.Part{Objects: g.clientRules(s.rules)})
		}
	}
}

// makePolicyStatuses makes the statuses of the policies that are due, and of policies for services to which the set of
// Gateways has changed.
func (r *run) makePolicyStatuses() {
	for x, was := range r.led {
		if s := r.secured[x.service]; s != nil && was != (r.backends[x.service][x.gateway] > 0) {
			for p := range s.policies {
				r.policiesDue[p.object.Key] = true
			}
		}
	}
	for key := range r.policiesDue {
		var part derive.Part
		if p := r.policies[key]; p != nil {
			part.Statuses = []*derive.Status{r.policyStatus(p)}
		}
		r.put(policyOf(key), part)
	}
}

// claim is a target of a policy that is in force.
type claim struct {
	policy *backendTLS
	target *tlsTarget
}

func (p *backendTLS) finding(field string, severity diag.Severity, fix, message string) diag.Diagnostic {
	return finding(p.object, severity, "BackendTLSPolicy", field, fix, message)
}

func (p *backendTLS) found(field string, severity diag.Severity, fix, message string) {
	p.findings = append(p.findings, p.finding(field, severity, fix, message))
}

func makePolicy(looked *lookups, o *kinds.Object) *backendTLS {
	p := &backendTLS{object: o, looked: looked, tls: &networkingv1alpha3.ClientTLSSettings{}}
	if p.ignored = strings.EqualFold(o.Annotations[kinds.AnnotationIgnorePolicy], "true"); p.ignored {
		for _, ref := range policySpec(o).TargetRefs {
			p.targets = append(p.targets, &tlsTarget{LocalPolicyTargetReferenceWithSectionName: ref, missing: "the policy is ignored"})
		}
		return p
	}
	p.accepted = condition{status: "True", reason: string(gatewayv1.PolicyReasonAccepted), message: "Configuration is valid"}
	p.resolved = condition{status: "True", reason: string(gatewayv1.BackendTLSPolicyReasonResolvedRefs), message: "Configuration is valid"}
	p.validation()
	for i, ref := range policySpec(o).TargetRefs {
		t := &tlsTarget{LocalPolicyTargetReferenceWithSectionName: ref, field: fmt.Sprintf("spec.targetRefs[%d]", i)}
		p.find(t)
		if t.missing != "" {
			p.found(t.field, diag.Warning, "name a Service or a ServiceEntry of the namespace", t.missing+": the policy has no effect for it")
		}
		p.targets = append(p.targets, t)
	}
	for name := range policySpec(o).Options {
		p.found(fmt.Sprintf("spec.options[%q]", name), diag.Warning, "remove it", "no option of this name is supported")
	}
	p.looked = nil
	return p
}

// validation makes the TLS settings. If the server's certificate cannot be validated, connections are refused.
func (p *backendTLS) validation() {
	v := policySpec(p.object).Validation
	p.tls = &networkingv1alpha3.ClientTLSSettings{Mode: networkingv1alpha3.ClientTLSSettings_SIMPLE, Sni: string(v.Hostname)}
	for _, n := range v.SubjectAltNames {
		p.tls.SubjectAltNames = append(p.tls.SubjectAltNames, cmp.Or(string(n.Hostname), string(n.URI)))
	}
	if len(v.SubjectAltNames) == 0 {
		p.tls.SubjectAltNames = []string{string(v.Hostname)}
	}
	if v.WellKnownCACertificates != nil && *v.WellKnownCACertificates != "" {
		if *v.WellKnownCACertificates != gatewayv1.WellKnownCACertificatesSystem {
			message := "Unknown value for wellKnownCACertificates: " + string(*v.WellKnownCACertificates)
			p.refuse(gatewayv1.PolicyReasonInvalid, gatewayv1.PolicyReasonInvalid, message, message,
				"spec.validation.wellKnownCACertificates", "write System")
		}
		return
	}
	if len(v.CACertificateRefs) == 0 {
		p.refuse(gatewayv1.PolicyReasonInvalid, gatewayv1.PolicyReasonInvalid, "no CA certificates are named",
			"no CA certificates are named", "spec.validation", "name a ConfigMap with ca.crt, or write wellKnownCACertificates: System")
		return
	}
	const field = "spec.validation.caCertificateRefs[0]"
	if len(v.CACertificateRefs) > 1 {
		p.accepted.message += "; warning: only the first caCertificateRefs will be used"
		p.found("spec.validation.caCertificateRefs[1]", diag.Warning, "put all CA certificates into one ConfigMap",
			"only the first reference is used")
	}
	ref := v.CACertificateRefs[0]
	bad := func(reason gatewayv1.PolicyConditionReason, how, what string) {
		p.refuse(gatewayv1.BackendTLSPolicyReasonNoValidCACertificate, reason, "Certificate reference invalid: "+what, how+": "+what,
			field, "name a ConfigMap with ca.crt")
	}
	switch {
	case ref.Group == "" && ref.Kind == "Secret":
		bad(gatewayv1.BackendTLSPolicyReasonInvalidKind, "Certificate reference invalid", "unsupported reference kind: Secret")
		return
	case ref.Group != "" || ref.Kind != "ConfigMap":
		bad(gatewayv1.BackendTLSPolicyReasonInvalidKind, "Certificate reference not supported", "unsupported kind "+string(ref.Kind))
		return
	}
	key := kinds.Key{Kind: kinds.ConfigMap, Namespace: p.object.Namespace, Name: string(ref.Name)}
	o := p.looked.object(key)
	if o == nil {
		bad(gatewayv1.BackendTLSPolicyReasonInvalidCACertificateRef, "Certificate reference not found",
			"reference "+key.Namespace+"/"+key.Name+" (of kind ConfigMap) not found")
		return
	}
	switch parsed := credentials.OfConfigMap(o.Spec.(*corev1.ConfigMap), time.Time{}); {
	case parsed.BadRoots != nil:
		bad(gatewayv1.BackendTLSPolicyReasonInvalidCACertificateRef, "Certificate invalid", parsed.BadRoots.Error())
	case parsed.Roots == nil:
		bad(gatewayv1.BackendTLSPolicyReasonInvalidCACertificateRef, "Certificate invalid",
			"ConfigMap "+key.Namespace+"/"+key.Name+" has no ca.crt")
	default:
		p.tls.CredentialName = "configmap://" + key.Namespace + "/" + key.Name
	}
}

// refuse records why connections cannot be validated, and makes proxies refuse them.
func (p *backendTLS) refuse(accepted, resolved gatewayv1.PolicyConditionReason, acceptedMessage, resolvedMessage, field, fix string) {
	p.accepted = condition{status: "False", reason: string(accepted), message: acceptedMessage}
	p.resolved = condition{status: "False", reason: string(resolved), message: resolvedMessage}
	p.tls.CredentialName = names.NoCredential
	p.found(field, diag.Error, fix, acceptedMessage+": connections to the targets are refused")
}

// find resolves the object that a targetRef names.
func (p *backendTLS) find(t *tlsTarget) {
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
// only.
func destinationRules(key kinds.Key, claims []claim) (list []derive.Derived) {
	policy := &networkingv1alpha3.TrafficPolicy{}
	for _, c := range claims {
		if c.target.port == 0 {
			policy.Tls = c.policy.tls
			continue
		}
		policy.PortLevelSettings = append(policy.PortLevelSettings, &networkingv1alpha3.TrafficPolicy_PortTrafficPolicy{
			Port: &networkingv1alpha3.PortSelector{Number: c.target.port}, Tls: c.policy.tls,
		})
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
