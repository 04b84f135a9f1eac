package injector

import (
	"encoding/json"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// TestRenameFields: fields get the names that a Pod has for them, whatever their case, and what a Pod does not have, or
// has by its name already, stays.
func TestRenameFields(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`{"Spec": {"CONTAINERS": [{"name": "a", "volumemounts": [{"name": "v", "readonly": true}]}]}}`,
			`{"spec":{"containers":[{"name":"a","volumeMounts":[{"name":"v","readOnly":true}]}]}}`},
		{`{"spec": {"volumes": [{"name": "v", "Secret": {"secretname": "s"}}]}}`,
			`{"spec":{"volumes":[{"name":"v","secret":{"secretName":"s"}}]}}`},
		{`{"metadata": {"labels": {"Name": "a"}, "nope": {"A": 1}}, "apiversion": "v1"}`,
			`{"apiVersion":"v1","metadata":{"labels":{"Name":"a"},"nope":{"A":1}}}`},
		{`{"spec": {"hostNetwork": true, "hostnetwork": false}}`, `{"spec":{"hostNetwork":true,"hostnetwork":false}}`},
		{`{"spec": {"containers": [{"resources": {"LIMITS": {"CPU": "1"}}}]}}`,
			`{"spec":{"containers":[{"resources":{"limits":{"CPU":"1"}}}]}}`},
	} {
		var v map[string]any
		must.Succeed(t, json.Unmarshal([]byte(c.text), &v))
		renameFields(v, reflect.TypeFor[corev1.Pod]())
		got, err := json.Marshal(v)
		must.Succeed(t, err)
		if string(got) != c.want {
			t.Errorf("%s:\n%s, want\n%s", c.text, got, c.want)
		}
	}
}
