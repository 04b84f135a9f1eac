package main

import "fmt"

// withPolicies is a part of W13: another workload in a mesh with policies.
type withPolicies struct {
	workload
	part string
}

func (p withPolicies) name() string { return "W13" + p.part }

func (p withPolicies) needs() needs {
	n := p.workload.needs()
	n.scene, n.limit = policies, false
	return n
}

func (p withPolicies) about(o options) string {
	return fmt.Sprintf("%s in a mesh with STRICT mutual TLS, 200 AuthorizationPolicies and 50 RequestAuthentications. %s", p.workload.name(),
		p.workload.about(o))
}
