package wasm

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	httpwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	networkwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/wasm/v3"
	wasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/wasm/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

func module(text string) []byte { return append([]byte("\x00asm\x01\x00\x00\x00"), text...) }

func sum(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }

func zip(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, err := z.Write(b)
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func archive(t *testing.T, name string, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(b)), Mode: 0o644, Typeflag: tar.TypeReg})
	if err == nil {
		_, err = w.Write(b)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// server serves paths, and counts requests.
type server struct {
	*httptest.Server
	files    sync.Map // of the path: its bytes
	requests atomic.Int32
	password string // for tokens; empty: none is needed
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

// push has an image of one layer under a tag, by a list of manifests, and returns the digest of the list.
func (s *server) push(t *testing.T, tag, mediaType string, layer []byte) string {
	t.Helper()
	encode := func(v any) []byte {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	type object = map[string]any
	manifest := encode(object{"layers": []object{{"mediaType": mediaType, "digest": "sha256:" + sum(layer), "size": len(layer)}}})
	list := encode(object{"manifests": []object{{"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": "sha256:" + sum(manifest)}}})
	s.files.Store("/v2/r/m/blobs/sha256:"+sum(layer), layer)
	s.files.Store("/v2/r/m/manifests/sha256:"+sum(manifest), manifest)
	s.files.Store("/v2/r/m/manifests/sha256:"+sum(list), list)
	s.files.Store("/v2/r/m/manifests/"+tag, list)
	return sum(list)
}

func start(t *testing.T, s *server, change func(*Options)) *Cache {
	t.Helper()
	o := Options{Dir: filepath.Join(t.TempDir(), "wasm"), Size: 1 << 16, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Insecure: []string{s.host()}, Registerer: prometheus.NewRegistry()}
	if change != nil {
		change(&o)
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// extension returns a filter with a remote module, encoded.
func extension(t *testing.T, url, sha string, network bool, variables map[string]string) []byte {
	t.Helper()
	plugin := &wasmv3.PluginConfig{Name: "p", Vm: &wasmv3.PluginConfig_VmConfig{VmConfig: &wasmv3.VmConfig{
		Code: &corev3.AsyncDataSource{Specifier: &corev3.AsyncDataSource_Remote{Remote: &corev3.RemoteDataSource{HttpUri: &corev3.HttpUri{Uri: url}, Sha256: sha}}},
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
	if err != nil {
		t.Fatal(err)
	}
	b, err := proto.Marshal(&corev3.TypedExtensionConfig{Name: "e", TypedConfig: a})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// decode returns the virtual machine of an extension.
func decode(t *testing.T, b []byte) *wasmv3.VmConfig {
	t.Helper()
	x := &corev3.TypedExtensionConfig{}
	if err := proto.Unmarshal(b, x); err != nil {
		t.Fatal(err)
	}
	m, err := x.GetTypedConfig().UnmarshalNew()
	if err != nil {
		t.Fatal(err)
	}
	return m.(interface{ GetConfig() *wasmv3.PluginConfig }).GetConfig().GetVmConfig()
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
		{"oci://" + s.host() + "/r/m:raw", "", "raw"}, {"oci://" + s.host() + "/r/m:image", digest, "image"}, {"oci://" + s.host() + "/r/m@sha256:" + digest, "", "image"},
	} {
		for _, network := range []bool{false, true} {
			before := s.requests.Load()
			b, err := c.Replace(t.Context(), extension(t, x.url, x.sha, network, map[string]string{"A": "b", pullSecretVariable: "{}", versionVariable: "7"}))
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
		if got, err := c.Replace(t.Context(), b); err != nil || !bytes.Equal(got, b) {
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
		{s.URL + "/m.wasm", sum([]byte("other")), "should be"}, {s.URL + "/page", "", "no Wasm module"}, {s.URL + "/big", "", "more than 65536"},
		{s.URL + "/bomb", "", "unpacked"}, {s.URL + "/other.tar", "", "no archive with plugin.wasm"}, {s.URL + "/absent", "", "404"}, {"ftp://h/m", "", "https://"},
		{oci + ":torn", "", "should be"}, {oci + ":raw", sum([]byte("other")), "should be"}, {oci + "@sha256:" + sum([]byte("other")), "", "404"}, {"oci://h", "", "oci://HOST"},
	} {
		if _, err := c.Replace(t.Context(), extension(t, x.url, x.sha, false, nil)); err == nil || !strings.Contains(err.Error(), x.want) || !strings.Contains(err.Error(), "extension e") {
			t.Errorf("%s: %v, want %s", x.url, err, x.want)
		}
	}
	if digest == "" || c.known.Len() != 0 {
		t.Errorf("%d modules are kept", c.known.Len())
	}
	if _, err := c.Replace(t.Context(), []byte{1}); err == nil {
		t.Error("junk is taken")
	}
	guarded := start(t, s, func(o *Options) { o.Allow = nil })
	if _, err := guarded.Replace(t.Context(), extension(t, s.URL+"/m.wasm", "", false, nil)); err == nil || !strings.Contains(err.Error(), "may not be fetched from") {
		t.Errorf("a module of this host: %v", err)
	}
}

// TestCredentials has a registry want a token, for which the pull secret has the password. No error shows it.
func TestCredentials(t *testing.T) {
	s := serve(t)
	s.password = "secret"
	s.push(t, "raw", rawLayer, module("raw"))
	c := start(t, s, nil)
	try := func(password string) error {
		config := fmt.Sprintf(`{"auths": {"https://%s": {"auth": %q}}}`, s.host(), base64.StdEncoding.EncodeToString([]byte("u:"+password)))
		_, err := c.Replace(t.Context(), extension(t, "oci://"+s.host()+"/r/m:raw", "", false, map[string]string{pullSecretVariable: config}))
		return err
	}
	if err := try("hidden"); err == nil || strings.Contains(err.Error(), "hidden") || !strings.Contains(err.Error(), "refused") {
		t.Errorf("a wrong password: %v", err)
	}
	if err := try("secret"); err != nil {
		t.Error(err)
	}
}

// TestKept has modules fetched anew where the policy says so, and the least recent ones removed.
func TestKept(t *testing.T) {
	s := serve(t)
	c := start(t, s, func(o *Options) { o.Modules = 2 })
	get := func(url, policy string) string {
		t.Helper()
		b, err := c.Replace(t.Context(), extension(t, url, "", false, map[string]string{policyVariable: policy}))
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(decode(t, b).GetCode().GetLocal().GetFilename())
		if err != nil {
			t.Fatal(err)
		}
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
	for _, name := range []string{"/b", "/c", "/d"} {
		s.files.Store(name, module(name))
		get(s.URL+name, "")
	}
	if files, err := os.ReadDir(c.o.Dir); err != nil || len(files) != 2 {
		t.Errorf("%v are kept, %v", files, err)
	}
}
