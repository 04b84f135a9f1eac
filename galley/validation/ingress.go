package validation

import "strings"

// ingress checks the rules that an API server enforces for an Ingress.
func ingress(p fieldRef) {
	spec := p.at("spec")
	if spec.at("rules").empty() && spec.at("defaultBackend").absent() {
		spec.missing("rules", "add rules or a defaultBackend", "the Ingress has neither rules nor a defaultBackend")
	}
	if b := spec.at("defaultBackend"); !b.absent() {
		ingressBackend(b)
	}
	for _, t := range spec.at("tls").items() {
		for _, h := range t.at("hosts").items() {
			ingressHost(h)
		}
	}
	for _, r := range spec.at("rules").items() {
		if h := r.at("host"); !h.empty() {
			ingressHost(h)
		}
		http := r.at("http")
		if http.absent() || !http.required("paths") {
			continue
		}
		for _, path := range http.at("paths").items() {
			ingressPath(path)
			if path.required("backend") {
				ingressBackend(path.at("backend"))
			}
		}
	}
}

// ingressHost checks a name, or a wildcard whose first label is a star.
func ingressHost(h fieldRef) {
	s := h.text()
	if rest, wild := strings.CutPrefix(s, "*."); wild {
		s = rest
	}
	if !isHost(s) || strings.ToLower(s) != s {
		h.bad(`write a DNS name in lower case, or a wildcard such as "*.example.com"`, "%q is not a host name", h.text())
	}
}

func ingressPath(p fieldRef) {
	path, kind := p.at("path"), p.at("pathType")
	if !p.required("pathType") {
		return
	}
	kind.oneOf("Exact", "Prefix", "ImplementationSpecific")
	switch s := path.text(); {
	case s == "" && kind.is("ImplementationSpecific"):
	case !strings.HasPrefix(s, "/"):
		path.bad("begin it with /", "%q is no absolute path", s)
	case !kind.is("ImplementationSpecific"):
		for _, part := range []string{"//", "/./", "/../", "%2f", "%2F"} {
			if strings.Contains(s, part) {
				path.bad("write the path that is meant", "%q contains %s", s, part)
			}
		}
		if strings.HasSuffix(s, "/..") || strings.HasSuffix(s, "/.") {
			path.bad("write the path that is meant", "%q ends in a relative segment", s)
		}
	}
}

func ingressBackend(b fieldRef) {
	service, resource := b.at("service"), b.at("resource")
	switch {
	case service.absent() && resource.absent():
		b.missing("service", "name a Service and its port", "the backend is empty")
	case !service.absent() && !resource.absent():
		resource.bad("remove one of them", "a backend is a service or a resource, not both")
	}
	if service.absent() {
		return
	}
	service.required("name")
	port := service.at("port")
	name, number := port.at("name"), port.at("number")
	switch {
	case name.empty() && number.absent():
		service.missing("port", "write port.number or port.name", "the backend has no port")
	case !name.empty() && !number.absent():
		name.bad("remove one of them", "a port has a name or a number, not both")
	case !number.absent():
		number.between(1, 65535)
	}
}

func ingressClass(p fieldRef) {
	if c := p.at("spec").at("controller"); !c.empty() && !strings.Contains(c.text(), "/") {
		c.bad("write a name such as istio.io/ingress-controller", "%q is no name with a domain", c.text())
	}
}
