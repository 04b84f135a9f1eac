package mesh_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/istiod-lite/istiod-lite/api/mesh"
)

func TestNetworks(t *testing.T) {
	n, found := mesh.ParseNetworks("networks", []byte(`
networks:
  wide: {endpoints: [{fromCidr: 10.0.0.0/8}],
    gateways: [{address: 192.0.2.1, port: 15443}, {registryServiceName: gw.edge.svc.cluster.local, port: 15443}]}
  narrow: {endpoints: [{fromCidr: 10.1.0.1/16}]}
  home: {endpoints: [{fromRegistry: Kubernetes}], gateways: [{registryServiceName: gw.edge.svc.cluster.local, port: 443}]}
`))
	if n == nil {
		t.Fatal(found)
	}
	of := n.Of("Kubernetes")
	for address, want := range map[string]string{"10.2.0.1": "wide", "10.1.0.1": "narrow",
		"::ffff:10.1.0.1": "narrow", "192.168.0.1": "home", "not an address": "home"} {
		if got := of.Network(address); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
	if got := n.Of("remote").Network("192.168.0.1"); got != "" {
		t.Errorf("an address of another cluster is in %s", got)
	}
	if d := cmp.Diff([]mesh.Gateway{{Network: "wide", Address: "192.0.2.1", Port: 15443}}, n.Gateways()); d != "" {
		t.Error(d)
	}
	// A service counts where its cluster is in the network.
	if d := cmp.Diff([]mesh.Gateway{{Network: "home", Service: "gw.edge.svc.cluster.local", Port: 443}}, n.Services("Kubernetes")); d != "" {
		t.Error(d)
	}
	if got := n.Services("remote"); len(got) > 0 {
		t.Errorf("services of a cluster in no network: %v", got)
	}
	if want := []string{"10.0.0.0/8", "10.1.0.0/16"}; !slices.Equal(n.Ranges(), want) {
		t.Errorf("ranges %v, want %v", n.Ranges(), want)
	}
}

func TestNoNetworks(t *testing.T) {
	var n *mesh.Networks
	if n.Of("Kubernetes").Network("10.0.0.1") != "" || len(n.Gateways())+len(n.Services("Kubernetes"))+len(n.Ranges()) > 0 {
		t.Error("a mesh without networks has some")
	}
}
