package wasm

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	httpwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	networkrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	networkwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/wasm/v3"
	wasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/wasm/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/istiod-lite/istiod-lite/api/safe"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

func module(text string) []byte { return append([]byte("\x00asm\x01\x00\x00\x00"), text...) }

func sum(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }

func zip(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, err := z.Write(b)
	must.Succeed(t, errors.Join(err, z.Close()))
	return out.Bytes()
}

func archive(t *testing.T, name string, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	must.Succeed(t, w.WriteHeader(&tar.Header{Name: name, Size: int64(len(b)), Mode: 0o644, Typeflag: tar.TypeReg}))
	_, err := w.Write(b)
	must.Succeed(t, errors.Join(err, w.Close()))
	return out.Bytes()
}

// server serves files, and counts requests.
type server struct {
	*httptest.Server
	files    sync.Map // of the path: its bytes
	requests atomic.Int32
	password string // password for tokens; empty if none is required
}

func serve(t *testing.T) *server {
	t.Helper()
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		switch {
		case r.URL.Path == "/token":
			if _, pass, _ := r.BasicAuth(); pass != s.password || r.URL.Query().Get("scope") != "repository:r/m:pull" {
				w.Header().Set("WWW-Authenticate", "Basic")
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			fmt.Fprint(w, `{"token": "good"}`)
			return
		case s.password != "" && strings.HasPrefix(r.URL.Path, "/v2/") && r.Header.Get("Authorization") != "Bearer good":
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",service="s",scope="repository:r/m:pull"`, r.Host))
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		b, ok := s.files.Load(r.URL.Path)
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = w.Write(b.([]byte))
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) host() string { return strings.TrimPrefix(s.URL, "http://") }

// push stores an image of one layer under a tag, with a list of manifests, and returns the digest of the list.
func (s *server) push(t *testing.T, tag, mediaType string, layer []byte) string {
	t.Helper()
	encode := func(v any) []byte {
		b, err := json.Marshal(v)
		must.Succeed(t, err)
		return b
	}
	type object = map[string]any
	manifest := encode(object{"layers": []object{{"mediaType": mediaType, "digest": "sha256:" + sum(layer), "size": len(layer)}}})
	list := encode(object{"manifests": []object{{"mediaType": "application/vnd.oci.image.manifest.v1+json",
		"digest": "sha256:" + sum(manifest)}}})
	s.files.Store("/v2/r/m/blobs/sha256:"+sum(layer), layer)
	s.files.Store("/v2/r/m/manifests/sha256:"+sum(manifest), manifest)
	s.files.Store("/v2/r/m/manifests/sha256:"+sum(list), list)
	s.files.Store("/v2/r/m/manifests/"+tag, list)
	return sum(list)
}

func start(t *testing.T, s *server, change func(*Options)) *Cache {
	t.Helper()
	o := Options{Dir: filepath.Join(t.TempDir(), "wasm"),
		Fetch:    safe.FetchOptions{Size: 1 << 16, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
		Insecure: []string{s.host()}, Registerer: prometheus.NewRegistry()}
	if change != nil {
		change(&o)
	}
	c, err := New(o)
	must.Succeed(t, err)
	return c
}

// extension returns an encoded filter with a remote module.
func extension(t *testing.T, url, sha string, network bool, variables map[string]string) []byte {
	t.Helper()
	plugin := &wasmv3.PluginConfig{Name: "p", Vm: &wasmv3.PluginConfig_VmConfig{VmConfig: &wasmv3.VmConfig{
		Code: &corev3.AsyncDataSource{Specifier: &corev3.AsyncDataSource_Remote{
			Remote: &corev3.RemoteDataSource{HttpUri: &corev3.HttpUri{Uri: url}, Sha256: sha},
		}},
	}}}
	if variables != nil {
		plugin.GetVmConfig().EnvironmentVariables = &wasmv3.EnvironmentVariables{KeyValues: variables}
	}
	var filter proto.Message = &httpwasmv3.Wasm{Config: plugin}
	if network {
		filter = &networkwasmv3.Wasm{Config: plugin}
	}
	return encode(t, filter)
}

func encode(t *testing.T, filter proto.Message) []byte {
	t.Helper()
	a, err := anypb.New(filter)
	must.Succeed(t, err)
	b, err := proto.Marshal(&corev3.TypedExtensionConfig{Name: "e", TypedConfig: a})
	must.Succeed(t, err)
	return b
}

// config returns the configuration of an extension.
func config(t *testing.T, b []byte) proto.Message {
	t.Helper()
	x := &corev3.TypedExtensionConfig{}
	must.Succeed(t, proto.Unmarshal(b, x))
	m, err := x.GetTypedConfig().UnmarshalNew()
	must.Succeed(t, err)
	return m
}

// decode returns the virtual machine of an extension.
func decode(t *testing.T, b []byte) *wasmv3.VmConfig {
	t.Helper()
	m, ok := config(t, b).(interface{ GetConfig() *wasmv3.PluginConfig })
	if !ok {
		t.Fatalf("in its place there is %v", config(t, b))
	}
	return m.GetConfig().GetVmConfig()
}

func TestReplace(t *testing.T) {
	s := serve(t)
	s.files.Store("/m.wasm", module("plain"))
	s.files.Store("/m.tar.gz", zip(t, archive(t, "./plugin.wasm", module("packed"))))
	s.push(t, "raw", rawLayer, module("raw"))
	digest := s.push(t, "image", "application/vnd.docker.image.rootfs.diff.tar.gzip", zip(t, archive(t, "plugin.wasm", module("image"))))
	c := start(t, s, nil)
	for _, x := range []struct{ url, sha, want string }{
		{s.URL + "/m.wasm", "", "plain"}, {s.URL + "/m.wasm", sum(module("plain")), "plain"}, {s.URL + "/m.tar.gz", "", "packed"},
		{"oci://" + s.host() + "/r/m:raw", "", "raw"}, {"oci://" + s.host() + "/r/m:image", digest, "image"},
		{"oci://" + s.host() + "/r/m@sha256:" + digest, "", "image"},
	} {
		for _, network := range []bool{false, true} {
			before := s.requests.Load()
			b, _, err := c.Replace(t.Context(), extension(t, x.url, x.sha, network,
				map[string]string{"A": "b", "ISTIO_META_WASM_IMAGE_PULL_SECRET": "{}", "ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION": "7",
					"ISTIO_META_WASM_IMAGE_PULL_POLICY": "IfNotPresent"}))
			if err != nil {
				t.Fatalf("%s: %v", x.url, err)
			}
			vm := decode(t, b)
			text, err := os.ReadFile(vm.GetCode().GetLocal().GetFilename())
			if err != nil || !bytes.Equal(text, module(x.want)) {
				t.Errorf("%s: %q, %v", x.url, text, err)
			}
			if v := vm.GetEnvironmentVariables().GetKeyValues(); len(v) != 1 || v["A"] != "b" {
				t.Errorf("%s: the module is told %v", x.url, v)
			}
			if network && s.requests.Load() != before {
				t.Errorf("%s is fetched a second time", x.url)
			}
		}
	}
	for _, same := range []proto.Message{&routerv3.Router{}, &httpwasmv3.Wasm{Config: &wasmv3.PluginConfig{Name: "local"}}} {
		b := encode(t, same)
		if got, _, err := c.Replace(t.Context(), b); err != nil || !bytes.Equal(got, b) {
			t.Errorf("%T is changed: %v", same, err)
		}
	}
}

func TestRefused(t *testing.T) {
	s := serve(t)
	s.files.Store("/m.wasm", module("plain"))
	s.files.Store("/page", []byte("<html>"))
	s.files.Store("/big", bytes.Repeat([]byte{0}, 1<<17))
	s.files.Store("/bomb", zip(t, module(strings.Repeat("x", 1<<17))))
	s.files.Store("/other.tar", archive(t, "other", module("x")))
	digest := s.push(t, "raw", rawLayer, module("raw"))
	s.push(t, "torn", rawLayer, module("torn"))
	s.files.Store("/v2/r/m/blobs/sha256:"+sum(module("torn")), module("else"))
	c := start(t, s, nil)
	oci := "oci://" + s.host() + "/r/m"
	for _, x := range []struct{ url, sha, want string }{
		{s.URL + "/m.wasm", sum([]byte("other")), "the SHA-256 is"}, {s.URL + "/page", "", "neither a Wasm module"},
		{s.URL + "/big", "", "more than 65536"},
		{s.URL + "/bomb", "", "unpacked"}, {s.URL + "/other.tar", "", "an archive with plugin.wasm"}, {s.URL + "/absent", "", "404"},
		{"ftp://h/m", "", "https://"},
		{oci + ":torn", "", "the SHA-256 is"}, {oci + ":raw", sum([]byte("other")), "the SHA-256 is"},
		{oci + "@sha256:" + sum([]byte("other")), "", "404"}, {"oci://h", "", "oci://HOST"},
	} {
		if got := refused(t, c, extension(t, x.url, x.sha, false, nil)); !strings.Contains(got, x.want) || !strings.Contains(got, "extension e") {
			t.Errorf("%s: %v, want %s", x.url, got, x.want)
		}
	}
	if digest == "" || c.files.Len() != 0 {
		t.Errorf("%d modules are kept", c.files.Len())
	}
	if _, _, err := c.Replace(t.Context(), []byte{1}); err == nil {
		t.Error("junk is taken")
	}
	guarded := start(t, s, func(o *Options) { o.Fetch.Allow = nil })
	if got := refused(t, guarded, extension(t, s.URL+"/m.wasm", "", false, nil)); !strings.Contains(got, "may not be fetched from") {
		t.Errorf("a module of this host: %v", got)
	}
}

// TestCredentials checks that a registry's token is requested with the password in the pull secret, and that no error
// contains the password.
func TestCredentials(t *testing.T) {
	s := serve(t)
	s.password = "secret"
	s.push(t, "raw", rawLayer, module("raw"))
	c := start(t, s, nil)
	try := func(password string) string {
		config := fmt.Sprintf(`{"auths": {"https://%s": {"auth": %q}}}`, s.host(), base64.StdEncoding.EncodeToString([]byte("u:"+password)))
		return refused(t, c, extension(t, "oci://"+s.host()+"/r/m:raw", "", false,
			map[string]string{"ISTIO_META_WASM_IMAGE_PULL_SECRET": config}))
	}
	if got := try("hidden"); strings.Contains(got, "hidden") || !strings.Contains(got, "refused the credentials") {
		t.Errorf("a wrong password: %v", got)
	}
	if got := refused(t, c, extension(t, "oci://"+s.host()+"/r/m:raw", "", false,
		map[string]string{"ISTIO_META_WASM_IMAGE_PULL_SECRET": ""})); !strings.Contains(got, "no image pull secret") {
		t.Errorf("without a secret: %v", got)
	}
	for url, want := range map[string]bool{"oci://h:1/r/m": true, "oci://h/m:latest": true, "oci://h/m:1": false,
		"oci://h/m@sha256:0": false, "https://h/m:latest": false} {
		if latest(url) != want {
			t.Errorf("%s: latest is not %t", url, want)
		}
	}
	if got := try("secret"); got != "" {
		t.Error(got)
	}
}

// TestCredentialsOfOthers checks that a registry gets only the password for its own host.
func TestCredentialsOfOthers(t *testing.T) {
	for host, want := range map[string]string{
		"registry.example": "u:p", "https://registry.example": "u:p", "https://registry.example/v1/": "u:p",
		"other.example": ":", "registry.example.org": ":", "example": ":", "registry.example:5000": ":", "other.example/registry.example": ":",
		"": ":",
	} {
		r := &registry{host: "registry.example"}
		if err := r.credentials(fmt.Sprintf(`{"auths": {%q: {"username": "u", "password": "p"}}}`, host)); err != nil ||
			r.user+":"+r.pass != want {
			t.Errorf("what is for %q becomes %s:%s, %v", host, r.user, r.pass, err)
		}
	}
}

// TestCredentialsGoByTLS checks that a registry with TLS cannot redirect the password to a token server without TLS.
func TestCredentialsGoByTLS(t *testing.T) {
	s := serve(t)
	c := start(t, s, nil)
	for _, x := range []struct {
		base, realm string
		want        bool
	}{
		{"https://registry.example/v2/r/m", s.URL + "/token", false},
		{"https://registry.example/v2/r/m", "//" + s.host() + "/token", false},
		{"https://registry.example/v2/r/m", "", false},
		{s.URL + "/v2/r/m", s.URL + "/token", true}, // the operator allows it
	} {
		before := s.requests.Load()
		r := &registry{c: c, base: x.base, user: "u", pass: "hidden"}
		err := r.authorize(t.Context(), fmt.Sprintf("Bearer realm=%q,service=\"s\"", x.realm))
		if asked := s.requests.Load() > before; asked != x.want {
			t.Errorf("%s, with a realm %q, is asked: %v (%v)", x.base, x.realm, asked, err)
		}
	}
}

// refused returns the log of a call that replaces an extension by a filter that denies all requests. It is empty if
// the module is a file.
func refused(t *testing.T, c *Cache, resource []byte) string {
	t.Helper()
	var log bytes.Buffer
	c.o.Log = slog.New(slog.NewTextHandler(&log, nil))
	b, _, err := c.Replace(t.Context(), resource)
	must.Succeed(t, err)
	if _, ok := config(t, b).(*httprbacv3.RBAC); ok != strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("%T is logged as %s", config(t, b), log.String())
	}
	return log.String()
}

// TestFailurePolicy checks that an extension without its module is replaced by its last good version or, if there is
// none, as its failure policy says.
func TestFailurePolicy(t *testing.T) {
	s := serve(t)
	s.files.Store("/m.wasm", module("1"))
	c := start(t, s, nil)
	plugin := func(url string, policy wasmv3.FailurePolicy) *wasmv3.PluginConfig {
		return &wasmv3.PluginConfig{FailurePolicy: policy, Vm: &wasmv3.PluginConfig_VmConfig{VmConfig: &wasmv3.VmConfig{
			Code: &corev3.AsyncDataSource{Specifier: &corev3.AsyncDataSource_Remote{
				Remote: &corev3.RemoteDataSource{HttpUri: &corev3.HttpUri{Uri: url}},
			}},
		}}}
	}
	replace := func(m interface {
		proto.Message
		GetConfig() *wasmv3.PluginConfig
	}) proto.Message {
		absent := strings.Contains(m.GetConfig().String(), "/absent")
		b, again, err := c.Replace(t.Context(), encode(t, m))
		if err != nil || again != absent {
			t.Fatalf("the module is absent: %v, try again: %v, %v", absent, again, err)
		}
		return config(t, b)
	}
	deny := &rbacv3.RBAC{Action: rbacv3.RBAC_ALLOW} // it has no policies, so it denies all
	for policy, rules := range map[wasmv3.FailurePolicy]*rbacv3.RBAC{
		wasmv3.FailurePolicy_FAIL_OPEN: nil, wasmv3.FailurePolicy_FAIL_CLOSED: deny, wasmv3.FailurePolicy_FAIL_RELOAD: deny,
		wasmv3.FailurePolicy_UNSPECIFIED: deny,
	} {
		if got, want := replace(&httpwasmv3.Wasm{Config: plugin(s.URL+"/absent", policy)}),
			(&httprbacv3.RBAC{Rules: rules}); !proto.Equal(got, want) {
			t.Errorf("%s: %v, want %v", policy, got, want)
		}
		if got, want := replace(&networkwasmv3.Wasm{Config: plugin(s.URL+"/absent", policy)}),
			(&networkrbacv3.RBAC{StatPrefix: "wasm", Rules: rules}); !proto.Equal(got, want) {
			t.Errorf("%s: %v, want %v", policy, got, want)
		}
	}
	file := func(name string, policy wasmv3.FailurePolicy) *httpwasmv3.Wasm {
		config := plugin("", policy)
		config.GetVmConfig().Code = &corev3.AsyncDataSource{Specifier: &corev3.AsyncDataSource_Local{
			Local: &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: name}},
		}}
		return &httpwasmv3.Wasm{Config: config}
	}
	there := filepath.Join(t.TempDir(), "m.wasm")
	must.Succeed(t, os.WriteFile(there, module("1"), 0o600))
	const open, closed = wasmv3.FailurePolicy_FAIL_OPEN, wasmv3.FailurePolicy_FAIL_CLOSED
	for _, x := range []struct {
		what string
		file *httpwasmv3.Wasm
		want proto.Message
	}{
		{"a file that is not there, which may fail", file("/absent", open), &httprbacv3.RBAC{}},
		{"a file that is not there", file("/absent", closed), &httprbacv3.RBAC{Rules: deny}},
		{"a file that is there", file(there, closed), file(there, closed)},
		{"a file that is no longer there, whose extension of before is kept", file("/absent", closed), file(there, closed)},
	} {
		if got := replace(x.file); !proto.Equal(got, x.want) {
			t.Errorf("%s: %v, want %v", x.what, got, x.want)
		}
	}
	last := replace(&httpwasmv3.Wasm{Config: plugin(s.URL+"/m.wasm", wasmv3.FailurePolicy_FAIL_CLOSED)})
	if got := replace(&httpwasmv3.Wasm{Config: plugin(s.URL+"/absent", wasmv3.FailurePolicy_FAIL_CLOSED)}); !proto.Equal(got, last) {
		t.Errorf("the extension of before is not kept: %v", got)
	}
}

// TestAway checks that a fetch is retried when the server is unavailable, and not when the server refuses it.
func TestAway(t *testing.T) {
	s := serve(t)
	s.files.Store("/m.wasm", module("1"))
	var asked, fails atomic.Int32
	away := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1); fails.Add(-1) >= 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		http.Redirect(w, r, s.URL+r.URL.Path, http.StatusFound)
	}))
	defer away.Close()
	c := start(t, s, func(o *Options) { o.MinBackoff = time.Millisecond })
	fails.Store(3)
	if got := refused(t, c, extension(t, away.URL+"/m.wasm", "", false, nil)); strings.Contains(got, "ERROR") || asked.Load() != 4 {
		t.Errorf("asked %d times: %s", asked.Load(), got)
	}
	asked.Store(0)
	if got := refused(t, c, extension(t, away.URL+"/absent", "", false, nil)); !strings.Contains(got, "404") && asked.Load() != 1 {
		t.Errorf("asked %d times: %s", asked.Load(), got)
	}
	if got := refused(t, c, extension(t, "http://127.0.0.1:1/m.wasm", "", true, nil)); !strings.Contains(got, "retrying to fetch") {
		t.Errorf("a port that nobody listens on: %s", got)
	}
}

// TestOthersDoNotWait checks that cached modules, and modules of other servers, are available while one server hangs.
func TestOthersDoNotWait(t *testing.T) {
	s := serve(t)
	s.files.Store("/a", module("a"))
	s.files.Store("/b", module("b"))
	asked, release := make(chan struct{}), make(chan struct{})
	hangs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-release
		http.Redirect(w, r, s.URL+"/a", http.StatusFound)
	}))
	defer hangs.Close()
	c := start(t, s, nil)
	get := func(url string) {
		if _, _, err := c.Replace(t.Context(), extension(t, url, "", false, nil)); err != nil {
			t.Error(err)
		}
	}
	get(s.URL + "/a")
	var both sync.WaitGroup
	for range 2 { // both wait for one fetch
		both.Go(func() { get(hangs.URL) })
	}
	<-asked
	get(s.URL + "/a")
	get(s.URL + "/b")
	close(release)
	both.Wait()
	if len(c.inFlight) != 0 {
		t.Errorf("%d turns are left", len(c.inFlight))
	}
}

// TestKept checks that modules are fetched again if the policy says so, and that the least recently used ones are
// removed.
func TestKept(t *testing.T) {
	s := serve(t)
	c := start(t, s, func(o *Options) { o.Modules = 2 })
	get := func(url, policy string) string {
		t.Helper()
		b, _, err := c.Replace(t.Context(), extension(t, url, "", false, map[string]string{"ISTIO_META_WASM_IMAGE_PULL_POLICY": policy}))
		must.Succeed(t, err)
		text, err := os.ReadFile(decode(t, b).GetCode().GetLocal().GetFilename())
		must.Succeed(t, err)
		return string(text[8:])
	}
	s.files.Store("/a", module("1"))
	get(s.URL+"/a", "")
	s.files.Store("/a", module("2"))
	if got := get(s.URL+"/a", "IfNotPresent"); got != "1" {
		t.Errorf("IfNotPresent has %s", got)
	}
	if got := get(s.URL+"/a", "Always"); got != "2" {
		t.Errorf("Always has %s", got)
	}
	version := func(v string) string {
		t.Helper()
		b, _, err := c.Replace(t.Context(), extension(t, s.URL+"/a", "", false,
			map[string]string{"ISTIO_META_WASM_IMAGE_PULL_POLICY": "Always", "ISTIO_META_WASM_PLUGIN_RESOURCE_VERSION": v}))
		must.Succeed(t, err)
		return decode(t, b).GetCode().GetLocal().GetFilename()
	}
	first := version("1")
	s.files.Store("/a", module("3"))
	if version("1") != first || version("2") == first {
		t.Error("Always is to fetch once for each version")
	}
	s.files.Delete("/a")
	if got := get(s.URL+"/a", "Always"); got != "3" {
		t.Errorf("without its server, Always has %s", got)
	}
	for _, name := range []string{"/b", "/c", "/d"} {
		s.files.Store(name, module(name))
		get(s.URL+name, "")
	}
	if files, err := os.ReadDir(c.o.Dir); err != nil || len(files) != 2 {
		t.Errorf("%v are kept, %v", files, err)
	}
}
