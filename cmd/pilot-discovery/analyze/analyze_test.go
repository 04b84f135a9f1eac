package analyze

import (
	"testing"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// Objects of suppressions are written as here, or as istioctl writes them: NAME.NAMESPACE, with names that have dots.
func TestSuppressions(t *testing.T) {
	for _, c := range []struct {
		text, code, object string
		want               bool
	}{
		{"IST0101=ServiceEntry api.example.com.shop", "IST0101", "ServiceEntry shop/api.example.com", true},
		{"IST0101=ServiceEntry shop/api.example.com", "IST0101", "ServiceEntry shop/api.example.com", true},
		{"IST0101=ServiceEntry api.shop", "IST0101", "ServiceEntry shop/api", true},
		{"IST0101=ServiceEntry api.shop", "IST0101", "ServiceEntry api/shop", false},
		{"IST0102=Namespace default", "IST0102", "Namespace default", true},
		{"IST0106=*", "WrongType", "Service a/b", true},
		{"*=Service a/*", "WrongType", "Service a/b", true},
	} {
		list, err := suppressions([]string{c.text})
		must.Succeed(t, err)
		if got := list[0].matches(diag.Diagnostic{Code: c.code, Object: c.object}); got != c.want {
			t.Errorf("%s of %s: %v", c.text, c.object, got)
		}
	}
}

// A command is asked about the objects of a namespace, those of none, and files.
func TestConcerns(t *testing.T) {
	f := &Flags{Namespace: "a"}
	for _, c := range []struct {
		d    diag.Diagnostic
		want bool
	}{
		{diag.Diagnostic{Object: "Service a/s"}, true},
		{diag.Diagnostic{Object: "Service b/s"}, false},
		{diag.Diagnostic{Object: "Service b/s", File: "x.yaml"}, true},
		{diag.Diagnostic{Object: "Namespace a"}, true},
		{diag.Diagnostic{Object: "Namespace b"}, false},
		{diag.Diagnostic{Object: "GatewayClass b"}, true},
		{diag.Diagnostic{}, true},
	} {
		if got := f.concerns(c.d); got != c.want {
			t.Errorf("%+v: %v", c.d, got)
		}
	}
}
