package clusterset

import (
	"slices"
	"testing"

	mcsv1alpha1 "sigs.k8s.io/mcs-api/pkg/apis/v1alpha1"
)

func TestAddresses(t *testing.T) {
	for _, c := range []struct{ ips, want []string }{
		{nil, nil},
		{[]string{""}, nil},
		{[]string{"10.0.0.9", "x", "10.0.0.10", "10.0.0.9", "fd00::1", "10.0.0.0/24"}, []string{"10.0.0.10", "10.0.0.9", "fd00::1"}},
	} {
		if got := Addresses(&mcsv1alpha1.ServiceImport{Spec: mcsv1alpha1.ServiceImportSpec{IPs: c.ips}}); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.ips, got, c.want)
		}
	}
}

func TestHost(t *testing.T) {
	h := Host("web", "a")
	if h != "web.a.svc.clusterset.local" || !IsHost(h) || IsHost("web.a.svc.cluster.local") || IsHost("clusterset.local") {
		t.Errorf("host %s", h)
	}
}
