package delegates

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	networkingv1alpha3 "istio.io/api/networking/v1alpha3"

	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// rule returns a rule of a namespace, with the fields that are given as JSON.
func rule(t *testing.T, namespace, fields string) Rule {
	t.Helper()
	h := &networkingv1alpha3.HTTPRoute{}
	must.Succeed(t, protojson.Unmarshal([]byte("{"+fields+"}"), h))
	return Rule{h, namespace}
}

// Which matches are within a root's is what istiod 1.31 says of the same pairs.
func TestNarrow(t *testing.T) {
	for _, c := range []struct {
		root, child string // the matches, as JSON
		want        string // of each match of the result, what it has; "out of" a match where the rule is left out
	}{
		{``, `{"uri":{"prefix":"/a"}}`, `uri:{prefix:"/a"}`},
		{`{"uri":{"prefix":"/a"}}`, ``, `uri:{prefix:"/a"}`},
		{`{"headers":{"u":{"prefix":"ja"}}}`, `{"headers":{"u":{"exact":"jason"}}}`, `headers:{key:"u" value:{exact:"jason"}}`},
		{`{"headers":{"u":{"prefix":"ja"}}}`, `{"headers":{"u":{"prefix":"jas"}}}`, `headers:{key:"u" value:{prefix:"jas"}}`},
		{`{"headers":{"u":{"prefix":"ja"}}}`, `{"headers":{"u":{"prefix":"j"}}}`, `out of 0`},
		{`{"headers":{"u":{"prefix":"ja"}}}`, `{"headers":{"u":{"regex":"ja.*"}}}`, `out of 0`},
		{`{"headers":{"u":{"regex":"ja.*"}}}`, `{"headers":{"u":{"regex":"ja.*"}}}`, `out of 0`},
		{`{"headers":{"u":{"regex":"ja.*"}}}`, `{"headers":{"u":{"exact":"jason"}}}`, `out of 0`},
		{`{"headers":{"u":{"exact":"jason"}}}`, `{"headers":{"u":{"exact":"jason"}}}`, `headers:{key:"u" value:{exact:"jason"}}`},
		{`{"headers":{"u":{"exact":"jason"}}}`, `{"headers":{"u":{"exact":"jane"}}}`, `out of 0`},
		{`{"headers":{"u":{"exact":"jason"}}}`, `{"headers":{"u":{"prefix":"jason"}}}`, `out of 0`},
		{`{"headers":{"u":{}}}`, `{"headers":{"u":{"exact":"jason"}}}`, `out of 0`},
		{`{"headers":{"u":{}}}`, `{"headers":{"u":{}}}`, `out of 0`},
		{`{"headers":{"u":{"exact":"jason"}}}`, `{"headers":{"u":{}}}`, `out of 0`},
		{`{"headers":{"u":{"exact":"a"}}}`, `{"headers":{"v":{"exact":"b"}}}`,
			`headers:{key:"u" value:{exact:"a"}} headers:{key:"v" value:{exact:"b"}}`},
		{`{"uri":{"prefix":"/a"}}`, `{"uri":{"exact":"/a/b"}}`, `uri:{exact:"/a/b"}`},
		{`{"uri":{"regex":"/a.*"}}`, `{"uri":{"regex":"/a.*"}}`, `out of 0`},
		{`{"uri":{"regex":"/a.*"}}`, `{"method":{"exact":"GET"}}`, `uri:{regex:"/a.*"} method:{exact:"GET"}`},
		{`{"ignoreUriCase":true,"uri":{"prefix":"/a"}}`, `{"method":{"exact":"GET"}}`, `out of 0`},
		{`{"method":{"exact":"GET"}}`, `{"ignoreUriCase":true,"uri":{"prefix":"/a"}}`, `out of 0`},
		{`{"ignoreUriCase":true,"uri":{"prefix":"/a"}}`,
			`{"ignoreUriCase":true,"uri":{"prefix":"/a/b"}}`, `uri:{prefix:"/a/b"} ignore_uri_case:true`},
		{`{"method":{"prefix":"P"}}`, `{"method":{"exact":"POST"}}`, `method:{exact:"POST"}`},
		{`{"scheme":{"exact":"https"}}`, `{"scheme":{"prefix":"http"}}`, `out of 0`},
		{`{"scheme":{"prefix":"http"}}`, `{"scheme":{"exact":"https"}}`, `scheme:{exact:"https"}`},
		{`{"authority":{"prefix":"web"}}`, `{"authority":{"exact":"web.a"}}`, `authority:{exact:"web.a"}`},
		{`{"authority":{"prefix":"web"}}`, `{"authority":{"exact":"eb.a"}}`, `out of 0`},
		{`{"queryParams":{"q":{"prefix":"a"}}}`, `{"queryParams":{"q":{"exact":"ab"}}}`, `query_params:{key:"q" value:{exact:"ab"}}`},
		{`{"withoutHeaders":{"w":{"prefix":"a"}}}`, `{"withoutHeaders":{"w":{"exact":"ab"}}}`, `without_headers:{key:"w" value:{exact:"ab"}}`},
		{`{"withoutHeaders":{"w":{"exact":"ab"}}}`, `{"withoutHeaders":{"w":{"prefix":"a"}}}`, `out of 0`},
		{`{"sourceNamespace":"a"}`, `{"uri":{"prefix":"/x"}}`, `out of 0`},
		{`{"uri":{"prefix":"/x"}}`, `{"sourceNamespace":"a"}`, `uri:{prefix:"/x"} source_namespace:"a"`},
		{`{"sourceNamespace":"a"}`, `{"sourceNamespace":"a"}`, `source_namespace:"a"`},
		{`{"sourceLabels":{"app":"web"}}`, `{"sourceLabels":{"app":"other"}}`, `out of 0`},
		{`{"sourceLabels":{"app":"web"}}`, `{"sourceLabels":{"version":"v1"}}`,
			`source_labels:{key:"app" value:"web"} source_labels:{key:"version" value:"v1"}`},
		{`{"port":80}`, `{"port":81}`, `out of 0`},
		{`{"port":80}`, `{"uri":{"prefix":"/x"}}`, `uri:{prefix:"/x"} port:80`},
		{`{"gateways":["mesh"]}`, `{"uri":{"prefix":"/x"}}`, `uri:{prefix:"/x"} gateways:"mesh"`},
		{`{"gateways":["mesh"]}`, `{"gateways":["mesh","gw"]}`, `out of 0`},
		{`{"gateways":["mesh","gw"]}`, `{"gateways":["gw"]}`, `out of 0`}, // another namespace's
		{`{"gateways":["mesh","gw"]}`, `{"gateways":["root/gw"]}`, `gateways:"root/gw"`},
		{`{"uri":{"prefix":"/a"}},{"uri":{"prefix":"/b"}}`, `{"uri":{"prefix":"/a/x"}},{"uri":{"prefix":"/c"}}`, `out of 1`},
		{`{"uri":{"prefix":"/a"}},{"uri":{"prefix":"/b"}}`,
			`{"uri":{"prefix":"/a/x"}},{"uri":{"prefix":"/b/y"}}`, `uri:{prefix:"/a/x"}, uri:{prefix:"/b/y"}`},
		{`{"name":"rm"},{"name":"rn"}`, `{"name":"cm"},{"uri":{"prefix":"/"}}`,
			`name:"rm-cm", name:"rn-cm", name:"rm" uri:{prefix:"/"}, name:"rn" uri:{prefix:"/"}`},
		{`{"statPrefix":"s"}`, `{"uri":{"prefix":"/"}},{"statPrefix":"t"}`, `uri:{prefix:"/"} stat_prefix:"s", stat_prefix:"t"`},
	} {
		root, child := rule(t, "root", `"match":[`+c.root+`]`), rule(t, "child", `"match":[`+c.child+`]`)
		list, outside := Narrow(root, child)
		var texts []string
		for _, m := range list {
			texts = append(texts, strings.ReplaceAll(m.String(), "  ", " "))
		}
		got := strings.Join(texts, ", ")
		if outside >= 0 {
			got = fmt.Sprint("out of ", outside)
		}
		if got != c.want {
			t.Errorf("%s within %s: %s, want %s", c.child, c.root, got, c.want)
		}
		if o := Outside(root, child); o != outside {
			t.Errorf("%s is not within %s: match %d, but rules are left out for match %d", c.child, c.root, o, outside)
		}
	}
}

func TestReplaced(t *testing.T) {
	for _, c := range []struct {
		root, child string
		want        []string
	}{
		{`"headers":{"request":{"set":{"a":"b"}}}`, ``, nil},
		{`"headers":{"request":{"set":{"a":"b"}}}`, `"headers":{"request":{"set":{"a":"c","d":"e"}}}`, nil},
		{`"headers":{"request":{"set":{"a":"b"}}}`, `"headers":{"request":{"set":{"d":"e"}}}`, []string{"headers"}},
		{`"headers":{"request":{"set":{"a":"b"}}}`, `"headers":{"response":{"set":{"a":"b"}}}`, []string{"headers"}},
		{`"headers":{"request":{"remove":["a"]}}`, `"headers":{"request":{"remove":["b"]}}`, []string{"headers"}},
		{`"rewrite":{"uri":"/a","authority":"x"}`, `"rewrite":{"uri":"/b"}`, []string{"rewrite"}},
		{`"rewrite":{"uri":"/a"}`, `"rewrite":{"uri":"/b"}`, nil},
		{`"retries":{"perTryTimeout":"1.5s"}`, `"retries":{"perTryTimeout":"2s","attempts":2}`, nil},
		{`"retries":{"attempts":2},"timeout":"1s"`, `"retries":{"retryOn":"reset"},"timeout":"2s"`, []string{"retries"}},
		{`"fault":{"abort":{"httpStatus":418}}`, `"fault":{"abort":{"grpcStatus":"OK"}}`, nil},
		{`"fault":{"abort":{"httpStatus":418}}`, `"fault":{"delay":{"fixedDelay":"1s"}}`, []string{"fault"}},
		{`"corsPolicy":{"allowMethods":["GET"]}`, `"corsPolicy":{"maxAge":"1s"}`, []string{"corsPolicy"}},
		{`"mirrors":[{"destination":{"host":"a"}}]`, `"mirrors":[{"destination":{"host":"b"}}]`, []string{"mirrors"}},
	} {
		if got := Replaced(rule(t, "a", c.root).HTTPRoute, rule(t, "a", c.child).HTTPRoute); !slices.Equal(got, c.want) {
			t.Errorf("%s replaces of %s: %q, want %q", c.child, c.root, got, c.want)
		}
	}
}
