package validation

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/jwks"
	"github.com/istiod-lite/istiod-lite/api/names"
)

func peerAuthentication(p fieldRef) {
	p.at("selector").workload("matchLabels")
	ports := p.at("portLevelMtls")
	if ports.absent() {
		return
	}
	if ports.empty() {
		ports.bad("remove it, or name a port", "portLevelMtls names no port")
	}
	if p.at("selector").at("matchLabels").empty() {
		ports.bad("add a selector with labels", "portLevelMtls needs a selector: ports are those of a workload")
	}
	ports.each(func(key string, value fieldRef) {
		if n, err := strconv.Atoi(key); err != nil || n < 1 || n > 65535 {
			value.bad("use a port from 1 to 65535", "%q is not a port", key)
		}
	})
}

func authorizationPolicy(p fieldRef) {
	p.target()
	action := p.at("action").text()
	provider := p.at("provider")
	if action == "CUSTOM" {
		if provider.at("name").empty() {
			provider.missing("name", "name an extension provider of the mesh config", "action CUSTOM needs a provider")
		}
	} else if !provider.absent() {
		provider.bad("set action to CUSTOM, or remove it", "a provider is only for action CUSTOM")
	}
	if p.at("rules").empty() && (action == "CUSTOM" || action == "DENY") {
		p.missing("rules", "add a rule: {} matches every request", "action %s without rules never applies", action)
	}
	if p.admission && action == "DENY" {
		onlyRequests(p)
	}
	for _, r := range p.at("rules").items() {
		rule(r)
		openHosts(r, action)
		if action == "CUSTOM" {
			external(r)
		}
	}
}

func rule(r fieldRef) {
	// An empty list would match everything, which its author cannot have meant.
	for _, f := range []string{"from", "to", "when"} {
		if at := r.at(f); !at.absent() && len(at.items()) == 0 {
			at.warn("remove it to match everything, or add an entry", "%s is empty: the rule applies to everything in this respect", f)
		}
	}
	for _, f := range r.at("from").items() {
		if src := f.at("source"); src.void() {
			f.missing("source", "add a source with one condition at least", "the source is empty")
		} else {
			source(src)
		}
	}
	for _, t := range r.at("to").items() {
		if op := t.at("operation"); op.void() {
			t.missing("operation", "add an operation with one condition at least", "the operation is empty")
		} else {
			operation(op)
		}
	}
	for _, w := range r.at("when").items() {
		condition(w)
	}
	contradictions(r.at("when").items())
}

// external refuses conditions on values that an external authorizer, which is asked first, cannot know yet.
func external(r fieldRef) {
	const fix, why = "leave it to the authorizer, or write a policy of its own", "%s cannot be used with action CUSTOM"
	for _, f := range r.at("from").items() {
		f.at("source").each(func(name string, list fieldRef) {
			if !strings.HasSuffix(strings.ToLower(name), "ipblocks") && !list.empty() {
				list.refuse(fix, why, name)
			}
		})
	}
	for _, w := range r.at("when").items() {
		switch key := w.at("key").text(); {
		case strings.HasPrefix(key, "request.auth."),
			slices.Contains([]string{"source.namespace", "source.principal", "source.serviceAccount", "source.trustDomain"}, key):
			w.at("key").refuse(fix, why, key)
		}
	}
}

// void reports whether no field of a mapping has a value in its list.
func (p fieldRef) void() bool {
	empty := true
	p.each(func(_ string, list fieldRef) { empty = empty && list.empty() })
	return empty
}

// values checks each value of some lists with judge, and reports lists that are written but empty.
func (p fieldRef) values(fields []string, judge func(fieldRef)) {
	for _, f := range fields {
		at := p.at(f)
		if !at.absent() && len(at.items()) == 0 {
			at.warn("remove it, or add a value", "%s is empty: it has no effect", f)
		}
		for _, v := range at.items() {
			if v.empty() {
				v.bad("remove it", "an empty value")
			} else if judge != nil {
				judge(v)
			}
		}
	}
	for _, f := range fields {
		p.excluded(f)
	}
}

func source(s fieldRef) {
	s.values([]string{"principals", "notPrincipals"}, principal)
	s.values([]string{"requestPrincipals", "notRequestPrincipals"}, requestPrincipal)
	s.values([]string{"namespaces", "notNamespaces"}, namespace)
	s.values([]string{"trustDomains", "notTrustDomains"}, trustDomain)
	s.values([]string{"ipBlocks", "notIpBlocks", "remoteIpBlocks", "notRemoteIpBlocks"}, block)
	s.values([]string{"serviceAccounts", "notServiceAccounts"}, serviceAccount)
	if accounts := s.at("serviceAccounts"); !accounts.absent() || !s.at("notServiceAccounts").absent() {
		for _, f := range []string{"principals", "notPrincipals", "namespaces", "notNamespaces"} {
			if at := s.at(f); !at.empty() {
				at.bad("keep one of the two", "serviceAccounts cannot be combined with %s", f)
			}
		}
	}
}

// serviceAccount checks name or namespace/name.
func serviceAccount(v fieldRef) {
	if strings.Contains(v.text(), "*") || strings.Count(v.text(), "/") > 1 ||
		strings.HasPrefix(v.text(), "/") || strings.HasSuffix(v.text(), "/") {
		v.bad("write name or namespace/name", "%q does not name a service account", v.text())
	}
	if len(v.text()) > 320 {
		v.refuse("write name or namespace/name", "the name is longer than 320 characters")
	} else if !isPlainName(v.text(), "-._/*") {
		v.neverMatches("write name or namespace/name", "no service account has the name %q", v.text())
	}
}

// pattern checks a value that is matched exactly, by prefix (abc*), by suffix (*abc) or for presence (*).
func pattern(v fieldRef) {
	v.oneStar("only one star at the beginning or the end of %q is a wildcard, any other is a plain character")
}

// segment checks a pattern of a namespace or a trust domain.
func segment(v fieldRef) {
	v.oneStar("where %q lets in, only one star at the beginning or the end is a wildcard; where it keeps out, each star is")
}

// requestPrincipal checks a pattern of an issuer and a subject, joined by a slash.
func requestPrincipal(v fieldRef) {
	segment(v)
	s := v.text()
	iss, sub := s, ""
	if i := strings.LastIndexByte(s, '/'); i >= 0 {
		iss, sub = s[:i], s[i+1:]
	}
	if (sub == "" || strings.HasSuffix(iss, ":/")) && !strings.Contains(s, "*") {
		v.warn("write issuer/subject, or issuer/* for every subject of the issuer", "%q names an issuer without a subject: no token matches it",
			s)
	}
}

// oneStar warns with a message about the value if it has two stars, or one that is neither its first nor its last
// character.
func (p fieldRef) oneStar(message string) {
	s := p.text()
	if inner := strings.TrimSuffix(strings.TrimPrefix(s, "*"), "*"); strings.Contains(inner, "*") || len(s)-len(inner) > 1 {
		p.warn("keep one star, at the beginning or the end", message, s)
	}
}

func operation(o fieldRef) {
	o.values([]string{"hosts", "notHosts"}, authority)
	o.values([]string{"methods", "notMethods"}, method)
	o.values([]string{"ports", "notPorts"}, portText)
	o.values([]string{"paths", "notPaths"}, func(v fieldRef) {
		if strings.ContainsAny(v.text(), "{}") {
			pathTemplate(v)
		} else {
			path(v)
		}
	})
}

// portText checks a port in a string.
func portText(v fieldRef) {
	switch n, err := strconv.Atoi(v.text()); {
	case err != nil || n < 0 || n > 65535 || v.text()[0] == '+' || v.text()[0] == '-':
		v.bad(`write a port from 1 to 65535, such as "8080"`, "%q is not a port", v.text())
	case n == 0:
		v.neverMatches("write a port from 1 to 65535", "no connection is to port 0")
	}
}

// pathTemplate checks a path with {*} for one segment and {**} for any number of segments. A proxy may end if it is
// sent a template that it cannot parse.
func pathTemplate(v fieldRef) {
	path, rooted := strings.CutPrefix(v.text(), "/")
	if !rooted {
		v.tolerated().bad("begin it with /", "%q is no template of a path", v.text())
	}
	segments, open := strings.Split(path, "/"), false
	for i, s := range segments {
		switch {
		case open && (s == "{*}" || s == "{**}"):
			v.bad("keep one, as the last", "%s follows {**}", s)
		case s == "{*}":
		case s == "{**}":
			open = true
		case s == "" && i < len(segments)-1:
			v.bad("remove one slash", "a template has no empty segment")
		case strings.ContainsAny(s, "{}*"):
			v.bad("use {*} or {**} as a whole segment", "segment %q mixes a template with text", s)
		case strings.ContainsFunc(s, func(c rune) bool { return !strings.ContainsRune(pathCharacters, c) }):
			v.bad("write it in percent-encoding, such as %20 for a space", "segment %q has a character that no path has", s)
		}
	}
}

// pathCharacters are the characters allowed in the segments of a path.
const pathCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~%!$&'()+,;:@="

func condition(w fieldRef) {
	if !w.required("key") {
		return
	}
	if w.at("values").empty() && w.at("notValues").empty() {
		w.missing("values", "add values or notValues", "a condition needs values")
	}
	key := w.at("key").text()
	lists := []string{"values", "notValues"}
	name, bracket, hasBracket := strings.Cut(key, "[")
	switch {
	case strings.Contains(key, "[]") && name == "request.auth.claims" && !strings.HasPrefix(bracket, "]"):
		w.at("key").tolerated().bad("name the claim", "%q has no name in brackets", key)
		return
	case hasBracket && !strings.HasSuffix(bracket, "]"), strings.Contains(key, "[]"):
		w.at("key").bad(`write the name in brackets, such as request.headers[version]`, "%q has no name in brackets", key)
		return
	case name == "request.headers" && strings.ContainsAny(bracket, "\x00\n\r"):
		w.at("key").bad("use letters, digits and dashes", "%q names no header", key)
	case name == "request.headers" && strings.Contains(bracket, "]["):
		w.at("key").warn("write request.headers[name] with one name",
			"a header has one name, so the condition cannot be evaluated: a rule of ALLOW never matches, and another rule matches without it")
		w.values(lists, nil)
	case name == "request.headers" && hasBracket:
		header(w.at("key"), strings.TrimSuffix(bracket, "]"))
		w.values(lists, headerValue)
	case name == "request.auth.claims" && hasBracket, strings.HasPrefix(name, "experimental.envoy.filters.") && hasBracket:
		w.values(lists, nil)
	case hasBracket:
		w.at("key").bad(diag.UnknownName(name, conditionKeys()), "unknown key %q", key)
	case key == "request.headers", key == "request.auth.claims", strings.HasPrefix(key, "experimental.envoy.filters."):
		w.at("key").bad("write "+key+"[name]", "%q has no name in brackets", key)
	case bracketed(key) != "":
		w.at("key").bad("write "+bracketed(key), "%q has no name in brackets", key)
	case key == "source.serviceAccount":
		w.values(lists, serviceAccount)
	case key == "source.ip", key == "remote.ip", key == "destination.ip":
		w.values(lists, block)
	case key == "destination.port":
		w.values(lists, portText)
	case key == "request.auth.principal":
		w.values(lists, requestPrincipal)
	case key == "source.principal":
		w.values(lists, principal)
	case key == "source.namespace":
		w.values(lists, namespace)
	case key == "source.trustDomain":
		w.values(lists, trustDomain)
	case key == "connection.sni":
		w.values(lists, requestedName)
	case slices.Contains(conditionKeys(), key):
		w.values(lists, pattern)
	default:
		w.at("key").bad(diag.UnknownName(key, conditionKeys()), "unknown key %q", key)
	}
}

// bracketed returns a key whose name follows a dot, such as request.auth.claims.groups, with the name in brackets. It
// returns "" for any other key.
func bracketed(key string) string {
	for _, begin := range []string{"request.headers", "request.auth.claims"} {
		if name, dotted := strings.CutPrefix(key, begin+"."); dotted && name != "" {
			return begin + "[" + strings.ReplaceAll(name, ".", "][") + "]"
		}
	}
	return ""
}

func conditionKeys() []string {
	return []string{
		"request.headers", "request.auth.claims", "request.auth.principal", "request.auth.audiences",
		"request.auth.presenter", "source.ip", "remote.ip", "source.namespace", "source.principal", "source.serviceAccount",
		"source.trustDomain", "destination.ip", "destination.port", "connection.sni",
	}
}

func requestAuthentication(p fieldRef) {
	p.target()
	for _, r := range p.at("jwtRules").items() {
		jwtRule(r)
	}
}

func jwtRule(r fieldRef) {
	if issuer := r.at("issuer"); issuer.empty() {
		const fix, why = "add issuer", "without an issuer the keys alone say which tokens are accepted"
		if r.at("jwksUri").empty() {
			issuer.refuse(fix, why)
		} else {
			issuer.warn(fix, why)
		}
	}
	for _, a := range r.at("audiences").items() {
		if a.empty() {
			a.bad("remove it", "an empty audience")
		}
	}
	r.tolerated().exclusive("jwks", "jwksUri")
	if u := r.at("jwksUri"); !u.empty() {
		parsed, err := url.Parse(u.text())
		known := err == nil && (parsed.Scheme == "http" || parsed.Scheme == "https")
		if u.istioAccepts = known; !known || parsed.Host == "" {
			u.bad("write an http or https URL", "jwksUri is not a URL")
		}
	}
	if k := r.at("jwks"); !k.empty() {
		var set struct {
			Keys []json.RawMessage `json:"keys"`
		}
		why := keySetFault(k.text())
		if why != "" && k.review { // in force, unusable keys are left out
			k.bad("write public keys as JSON, such as the provider's jwks_uri returns", "%s", why)
		}
		if err := json.Unmarshal([]byte(k.text()), &set); err != nil || set.Keys == nil {
			k.istioAccepts = why == ""
			k.bad(`write the JSON of a key set: {"keys": [...]}`, "jwks is not a JSON Web Key Set")
		}
		keysOf(k)
	}
	for _, h := range r.at("fromHeaders").items() {
		if h.required("name") {
			h.at("name").tolerated().headerName(h.at("name").text())
		}
		if prefix := h.at("prefix"); strings.ContainsAny(prefix.text(), "\x00\r\n") {
			prefix.tolerated().bad("write it in one line", "no header has a value that begins with it")
		}
	}
	for _, f := range []string{"fromParams", "fromCookies", "spaceDelimitedClaims"} {
		for _, v := range r.at(f).items() {
			if v.istioAccepts = f == "spaceDelimitedClaims"; v.empty() {
				v.bad("remove it", "an empty value in %s", f)
			}
		}
	}
	if h := r.at("outputPayloadToHeader"); !h.empty() {
		h.tolerated().headerName(h.text())
	}
	for _, c := range r.at("outputClaimToHeaders").items() {
		if c.required("header") {
			if h := c.at("header"); names.HeaderName(h.text()) && !isPlainName(h.text(), "-_") {
				h.refuse("use letters, digits and dashes", "%q is not the name of a header", h.text())
			} else {
				h.headerName(h.text())
			}
		}
		c.required("claim")
	}
	r.at("timeout").interval()
}

// keysOf warns of keys that should not be in an object. If the object is in force, the feature of tokens reports what
// is left out of the set.
func keysOf(k fieldRef) {
	const fix = "write public keys alone, RSA ones of 2048 bits or more"
	if _, changed, err := jwks.Inline(k.text()); err == nil && len(changed) > 0 && k.admission {
		k.add(diag.Warning, "KeysLeftOut", fix, "%s", strings.Join(changed, "; "))
	}
	if jwks.Shared(k.text()) {
		k.warn(fix, "a key of type oct is a shared secret: every reader of this object can make tokens with it")
	}
}

// keySetFault returns why Istio's webhook refuses a JSON Web Key Set, or "". The webhook accepts a single key too, and
// ignores text behind it.
func keySetFault(text string) string {
	var set map[string]json.RawMessage
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&set); err != nil || set == nil {
		return "jwks is no JSON object"
	}
	list, ok := set["keys"]
	if !ok {
		return keyFault(json.RawMessage(text), "the key")
	}
	var keys []json.RawMessage
	if err := json.Unmarshal(list, &keys); err != nil {
		return "the keys of jwks are no list"
	}
	for i, key := range keys {
		if why := keyFault(key, "key "+strconv.Itoa(i)); why != "" {
			return why
		}
	}
	return ""
}

// keyFault returns the fault in the form of a key with a name, or "".
func keyFault(text json.RawMessage, name string) string {
	var key map[string]json.RawMessage
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&key); err != nil || key == nil {
		return name + " is no JSON object"
	}
	word := func(field string) (value string, ok bool) {
		ok = key[field] != nil && json.Unmarshal(key[field], &value) == nil
		return value, ok
	}
	var needs []string
	switch kty, _ := word("kty"); kty {
	case "RSA":
		needs = []string{"n", "e"}
	case "EC":
		needs = []string{"x", "y"}
	case "OKP":
		needs = []string{"x"}
	case "oct":
		needs = []string{"k"}
	default:
		return name + " has no type that is known: kty is RSA, EC, OKP or oct"
	}
	for _, field := range []string{"crv", "kid", "alg", "use"} {
		_, ok := word(field)
		if key[field] != nil && !ok {
			return name + ": " + field + " is no string"
		}
		if needsCurve := needs[0] == "x"; field == "crv" && needsCurve && key[field] == nil {
			return name + " has no crv"
		}
	}
	for _, field := range needs {
		value, ok := word(field)
		if !ok {
			return name + " has no " + field
		}
		value = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(value, "="))
		if _, err := base64.RawStdEncoding.DecodeString(value); err != nil {
			return name + ": " + field + " is not base64"
		}
	}
	return ""
}
