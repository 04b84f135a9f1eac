package exports

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/mesh"
	"github.com/istiod-lite/istiod-lite/deploy/apiserver"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// services is a World.
type services struct {
	objects map[kinds.Key]*kinds.Object
	mesh    *mesh.Config
}

func (s *services) Object(k kinds.Key) *kinds.Object { return s.objects[k] }
func (s *services) Mesh() *mesh.Config               { return s.mesh }
func (s *services) ObjectsOf(k *kinds.Kind) (list []*kinds.Object) {
	for key, o := range s.objects {
		if key.Kind == k {
			list = append(list, o)
		}
	}
	return list
}

func (s *services) add(cluster, namespace, name, uid string, kind corev1.ServiceType) kinds.Change {
	k := kinds.Key{Kind: kinds.Service, Namespace: namespace, Name: name, Cluster: cluster}
	s.objects[k] = &kinds.Object{Key: k, UID: uid, Spec: &corev1.Service{Spec: corev1.ServiceSpec{Type: kind}}}
	return kinds.Change{Key: k, Object: s.objects[k]}
}

// TestExporter has which Services get a ServiceExport: at the beginning, when a Service comes, when the mesh
// configuration changes, and after another client has deleted the ServiceExport.
func TestExporter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, world := &apiserver.Server{Streamed: kinds.All()}, &services{map[kinds.Key]*kinds.Object{}, mesh.Default()}
		for _, x := range [][3]string{
			{"", "a", "web"}, {"", "kube-system", "dns"}, {"", "default", "kubernetes"}, {"", "a", "local"}, {"east", "a", "far"},
			{"", "istio-system", "istiod"},
		} {
			world.add(x[0], x[1], x[2], "u-"+x[2], "")
		}
		world.add("", "a", "alias", "u-alias", corev1.ServiceTypeExternalName)
		world.add("", "a", "file", "", "")
		world.mesh = withLocal("local.a.svc.cluster.local")
		e, err := New(Options{
			Client: s.Config(), Domain: "cluster.local", World: world, Logger: slog.New(slog.DiscardHandler),
		})
		must.Succeed(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			e.Run(ctx)
		}()
		const path = "/apis/multicluster.x-k8s.io/v1alpha1/namespaces/"
		check := func(when string, want ...string) {
			t.Helper()
			time.Sleep(time.Minute)
			synctest.Wait()
			var got []string
			for _, w := range s.Writes() {
				got = append(got, w.String())
			}
			slices.Sort(got)
			if !slices.EqualFunc(got, want, strings.Contains) {
				t.Errorf("%s: writes %q, want %q", when, got, want)
			}
			if list := e.Findings(); len(list) > 0 {
				t.Errorf("%s: findings %v", when, list)
			}
		}
		check("at the beginning", path+"a/serviceexports")
		web := s.Object(path + "a/serviceexports/web")
		owners := web.GetOwnerReferences()
		if len(owners) != 1 || owners[0].UID != "u-web" || owners[0].Kind != "Service" || owners[0].APIVersion != "v1" {
			t.Errorf("owners %+v", owners)
		}
		e.Committed([]kinds.Change{world.add("", "b", "api", "u-api", ""), world.add("east", "b", "other", "u-other", "")})
		check("when a Service comes", path+"b/serviceexports")
		world.mesh = mesh.Default()
		e.Committed(nil)
		check("when a Service is no longer cluster-local", path+"a/serviceexports")
		s.Drop(path + "a/serviceexports/web")
		check("when a ServiceExport is deleted", path+"a/serviceexports")
		e.Committed([]kinds.Change{world.add("", "a", "web", "u-web", "")})
		check("when a Service changes that is exported")
		cancel()
		<-ended
	})
}

// withLocal returns a mesh configuration with a host that is a separate service in each cluster.
func withLocal(host string) *mesh.Config {
	m := mesh.Default()
	m.ServiceSettings = []*meshv1alpha1.MeshConfig_ServiceSettings{{
		Settings: &meshv1alpha1.MeshConfig_ServiceSettings_Settings{ClusterLocal: true}, Hosts: []string{host},
	}}
	return m
}
