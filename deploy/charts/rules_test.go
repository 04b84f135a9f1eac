package charts

import (
	stdcmp "cmp"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/deploy/must"
)

// objects returns the manifests of one kind.
func objects[T any](t *testing.T, manifests, kind string) []T {
	t.Helper()
	var all []T
	for doc := range strings.SplitSeq("\n"+manifests, "\n---\n") {
		var head struct{ Kind string }
		must.Succeed(t, yaml.Unmarshal([]byte(doc), &head))
		if head.Kind == kind {
			var o T
			must.Succeed(t, yaml.UnmarshalStrict([]byte(doc), &o))
			all = append(all, o)
		}
	}
	return all
}

// verbs returns the verbs that rules allow, by resource as "plural.group" with the names that the rule is restricted
// to.
func verbs(rules []rbacv1.PolicyRule) map[string]string {
	all := map[string][]string{}
	for _, r := range rules {
		for _, g := range r.APIGroups {
			for _, resource := range r.Resources {
				name := strings.TrimSuffix(resource+"."+g, ".")
				if len(r.ResourceNames) > 0 {
					name += " " + strings.Join(r.ResourceNames, ",")
				}
				all[name] = append(all[name], r.Verbs...)
			}
		}
	}
	out := map[string]string{}
	for name, list := range all {
		slices.Sort(list)
		out[name] = strings.Join(list, " ")
	}
	return out
}

const read = "get list watch"

// The server's rights are exactly those that it uses. It reads every kind, and the Secrets and ConfigMaps that gateways
// need. It creates TokenReviews and SubjectAccessReviews. It writes registered workloads, its CA and Leases, the roots
// of namespaces, the objects of Gateways and, if enabled, statuses. It patches its own webhook configurations, by name.
func TestRules(t *testing.T) {
	const deployed, asked = "create get list patch watch", "create delete get list patch watch" // for Gateways
	cluster := map[string]string{
		"customresourcedefinitions.apiextensions.k8s.io": read, "tokenreviews.authentication.k8s.io": "create",
		"ingresses/status.networking.k8s.io": "patch", "subjectaccessreviews.authorization.k8s.io": "create", "secrets": read,
		"configmaps": "create get list watch", "configmaps istio-ca-root-cert,istio-ca-crl": "list patch watch",
		"deployments.apps": deployed, "serviceaccounts": deployed, "horizontalpodautoscalers.autoscaling": asked,
		"poddisruptionbudgets.policy": asked,
	}
	for _, of := range []string{"backendtlspolicies", "gatewayclasses", "gateways", "grpcroutes", "httproutes", "listenersets", "tcproutes",
		"tlsroutes", "udproutes"} {
		cluster[of+"/status.gateway.networking.k8s.io"] = "patch"
	}
	for _, k := range kinds.All() {
		if k != kinds.Secret && k != kinds.ConfigMap && !k.IsOptional() {
			cluster[strings.TrimSuffix(k.Plural+"."+k.Group, ".")] = read
		}
	}
	cluster["services"], cluster["gatewayclasses.gateway.networking.k8s.io"] = deployed, "create "+read
	entries, status := "workloadentries.networking.istio.io", "workloadentries/status.networking.istio.io"
	with := func(more map[string]string) map[string]string {
		all := maps.Clone(cluster)
		maps.Copy(all, more)
		return all
	}
	writes := with(map[string]string{entries: "create delete get list patch watch", status: "patch"})
	secrets := map[string]string{"secrets": "create get list watch", "secrets istio-ca-secret": "update"}
	reads := func(mesh string) map[string]string {
		all := maps.Clone(secrets)
		first, _, _ := strings.Cut(mesh, ",")
		all["configmaps "+mesh+",istio-sidecar-injector"+strings.TrimPrefix(first, "istio")] = read
		all["gateways.networking.istio.io"] = "create" // an invalid one, as a dry run
		return all
	}
	const roots = "istio-namespace-controller-election,istio-webhook-controller-election"
	leads := func(mesh, leases string) map[string]string {
		all := reads(mesh)
		first, _, _ := strings.Cut(mesh, ",")
		suffix := strings.TrimPrefix(first, "istio")
		hooks := "istio-webhook-controller-election" + suffix
		leases = strings.Replace(leases, hooks, hooks+",istio-gateway-deployment-"+stdcmp.Or(strings.TrimPrefix(suffix, "-"), "default"), 1)
		all["leases.coordination.k8s.io"], all["leases.coordination.k8s.io istio-leader,"+leases] = "create get", "update"
		return all
	}
	without := func(all map[string]string, names ...string) map[string]string {
		all = maps.Clone(all)
		for _, n := range names {
			delete(all, n)
		}
		return all
	}
	cacerts := without(leads("istio", "istio-workloadentry-cleanup,"+roots), "secrets istio-ca-secret")
	cacerts["secrets istio-ca-secret,cacerts"] = "update"
	noCA := without(leads("istio", "istio-workloadentry-cleanup,istio-webhook-controller-election"), "secrets istio-ca-secret")
	noCA["secrets"] = read
	noRoots := without(writes, "configmaps istio-ca-root-cert,istio-ca-crl")
	noRoots["configmaps"] = read
	const election = "env.ENABLE_LEADER_ELECTION"
	const registration, health = "env.PILOT_ENABLE_WORKLOAD_ENTRY_AUTOREGISTRATION", "env.PILOT_ENABLE_WORKLOAD_ENTRY_HEALTHCHECKS"
	external := maps.Clone(noCA)
	delete(external,
		"leases.coordination.k8s.io istio-leader,istio-workloadentry-cleanup,istio-webhook-controller-election,istio-gateway-deployment-default")
	external["leases.coordination.k8s.io istio-leader,istio-workloadentry-cleanup,"+roots+",istio-gateway-deployment-default"] = "update"
	signed := func(signers string) map[string]string {
		all, group := maps.Clone(writes), ".certificates.k8s.io"
		all["certificatesigningrequests"+group], all["certificatesigningrequests/approval"+group] = "create delete get watch", "update"
		all["signers"+group+" "+signers] = "approve"
		return all
	}
	otherMaps := without(writes, "configmaps istio-ca-root-cert,istio-ca-crl")
	otherMaps["configmaps a,b"] = "list patch watch"
	const off = "env.PILOT_ENABLE_GATEWAY_API_"
	noGateways := without(writes, "deployments.apps", "serviceaccounts", "horizontalpodautoscalers.autoscaling", "poddisruptionbudgets.policy")
	noGateways["services"], noGateways["gatewayclasses.gateway.networking.k8s.io"] = read, read
	noGatewaysRole := reads("istio")
	noGatewaysRole["leases.coordination.k8s.io"], noGatewaysRole["leases.coordination.k8s.io istio-leader,istio-workloadentry-cleanup,"+
		roots] = "create get", "update"
	statuses := maps.Clone(writes)
	for _, k := range kinds.All() {
		if k.Istio {
			statuses[k.Plural+"/status."+k.Group] = "patch"
		}
	}
	sets, exports := with(writes), with(writes)
	exports["serviceexports.multicluster.x-k8s.io"] = "create " + read
	sets["serviceexports.multicluster.x-k8s.io"], sets["serviceimports.multicluster.x-k8s.io"] = read, read
	alpha := with(writes)
	alpha["xbackendtrafficpolicies.gateway.networking.x-k8s.io"] = read
	alpha["xbackendtrafficpolicies/status.gateway.networking.x-k8s.io"] = "patch"
	for _, c := range []struct {
		name, set, suffix string
		cluster, role     map[string]string
		tags              string // with the names that are patched
	}{
		{"defaults", registration + "=true", "", writes, leads("istio", "istio-workloadentry-cleanup,"+roots), ""},
		{"revision", "revision=canary", "-canary", writes, leads("istio-canary", "istio-workloadentry-cleanup-canary,"+roots+"-canary"), ""},
		{"tags", "revisionTags={stable,next}", "", writes, leads("istio", "istio-workloadentry-cleanup,"+roots),
			",istio-revision-tag-stable,istio-revision-tag-next"},
		{"revision called default", "revision=default", "", writes, leads("istio", "istio-workloadentry-cleanup,"+roots), ""},
		{"shared mesh configuration", "env.SHARED_MESH_CONFIG=shared", "", writes,
			leads("istio,shared", "istio-workloadentry-cleanup,"+roots), ""},
		{"no health", health + "=false", "", with(map[string]string{entries: "create delete get list patch watch"}),
			leads("istio", "istio-workloadentry-cleanup,"+roots), ""},
		{"no registration", registration + "=false", "", cluster, leads("istio", roots), ""},
		{"no registration, in short", registration + "=0", "", cluster, leads("istio", roots), ""},
		{"no election", election + "=false", "", writes, reads("istio"), ""},
		{"an election", election + "=true", "", writes, leads("istio", "istio-workloadentry-cleanup,"+roots), ""},
		{"statuses", "env.PILOT_ENABLE_ANALYSIS=true", "", statuses,
			leads("istio", "istio-workloadentry-cleanup,"+roots+",istio-analyze-leader"), ""},
		{"conditions", "env.PILOT_ENABLE_CONFIG_DISTRIBUTION_STATUS=true", "", statuses,
			leads("istio", "istio-workloadentry-cleanup,"+roots+",istio-status-leader"), ""},
		{"taints", "taint.enabled=true", "", with(map[string]string{entries: "create delete get list patch watch", status: "patch",
			"nodes": "get list patch watch"}), leads("istio", "istio-workloadentry-cleanup,"+roots+",istio-node-untaint"), ""},
		{"taints, but for the variable", "taint.enabled=true,env.PILOT_ENABLE_NODE_UNTAINT_CONTROLLERS=false", "", writes,
			leads("istio", "istio-workloadentry-cleanup,"+roots), ""},
		{"no statuses", "env.PILOT_ENABLE_ANALYSIS=false", "", writes, leads("istio", "istio-workloadentry-cleanup,"+roots), ""},
		{"services in all clusters", "env.ENABLE_MCS_SERVICE_DISCOVERY=true", "", sets,
			leads("istio", "istio-workloadentry-cleanup,"+roots), ""},
		{"exports", "env.ENABLE_MCS_AUTO_EXPORT=true", "", exports, leads("istio", "istio-workloadentry-cleanup,"+roots+
			",istio-serviceexport-controller-election"), ""},
		{"alpha parts of the Gateway API", "env.PILOT_ENABLE_ALPHA_GATEWAY_API=true", "", alpha,
			leads("istio", "istio-workloadentry-cleanup,"+roots), ""},
		{"no Gateways", off + "DEPLOYMENT_CONTROLLER=false," + off + "GATEWAYCLASS_CONTROLLER=false", "", noGateways, noGatewaysRole, ""},
		{"no CA", "env.ENABLE_CA_SERVER=false", "", noRoots, noCA, ""},
		{
			"signers of Kubernetes",
			"env.EXTERNAL_CA=ISTIOD_RA_KUBERNETES_API,env.K8S_SIGNER=a.example/b,env.CERT_SIGNER_DOMAIN=c.example," +
				"global.pilotCertProvider=k8s.io/d.example/e", "",
			signed("a.example/b,c.example/*,d.example/e"), external, "",
		},
		{"a signer for the server alone", "env.CERT_SIGNER_DOMAIN=c.example,env.PILOT_CERT_PROVIDER=k8s.io/d.example/e", "",
			signed("d.example/e"), leads("istio", "istio-workloadentry-cleanup,"+roots), ""},
		{"a ClusterTrustBundle", "env.ENABLE_CLUSTER_TRUST_BUNDLE_API=true,global.trustBundleName=istio-ca-root-cert", "", with(map[string]string{
			entries: "create delete get list patch watch", status: "patch", "clustertrustbundles.certificates.k8s.io": "create",
			"clustertrustbundles.certificates.k8s.io istio.io:istiod-ca:root-cert": "list patch watch",
			"signers.certificates.k8s.io istio.io/istiod-ca":                       "attest",
		}), leads("istio", "istio-workloadentry-cleanup,"+roots), ""},
		{"other ConfigMaps", "global.trustBundleName=a,crlConfigMapName=b", "", otherMaps,
			leads("istio", "istio-workloadentry-cleanup,"+strings.Replace(roots, ",", ",istio-namespace-controller-election-a-b,", 1)), ""},
		{"a CA in cacerts", "env.USE_CACERTS_FOR_SELF_SIGNED_CA=true", "", writes, cacerts, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := template(t, helms(t)[0], "istiod", chart(t, "istiod"), "--set", c.set)
			clusterRoles, roles := objects[rbacv1.ClusterRole](t, out, "ClusterRole"), objects[rbacv1.Role](t, out, "Role")
			if len(clusterRoles) != 1 || len(roles) != 1 {
				t.Fatalf("%d cluster roles, %d roles", len(clusterRoles), len(roles))
			}
			all := maps.Clone(c.cluster)
			const group = "webhookconfigurations.admissionregistration.k8s.io"
			all["mutating"+group], all["validating"+group] = read, read
			all["mutating"+group+" istio-sidecar-injector"+c.suffix+c.tags] = "patch"
			all["validating"+group+" istio-validator"+c.suffix+"-istio-system,istiod-default-validator"] = "patch"
			if d := cmp.Diff(all, verbs(clusterRoles[0].Rules)); d != "" {
				t.Errorf("cluster role: %s", d)
			}
			if d := cmp.Diff(c.role, verbs(roles[0].Rules)); d != "" {
				t.Errorf("role: %s", d)
			}
			if name := "istiod-clusterrole" + c.suffix + "-istio-system"; clusterRoles[0].Name != name || roles[0].Namespace != "istio-system" {
				t.Errorf("cluster role %s, role of %s", clusterRoles[0].Name, roles[0].Namespace)
			}
			account := rbacv1.Subject{Kind: "ServiceAccount", Name: "istiod" + c.suffix, Namespace: "istio-system"}
			for _, b := range objects[rbacv1.ClusterRoleBinding](t, out, "ClusterRoleBinding") {
				if b.RoleRef.Name != clusterRoles[0].Name || !cmp.Equal(b.Subjects, []rbacv1.Subject{account}) {
					t.Errorf("%+v", b)
				}
			}
			for _, b := range objects[rbacv1.RoleBinding](t, out, "RoleBinding") {
				if b.RoleRef.Name != roles[0].Name || !cmp.Equal(b.Subjects, []rbacv1.Subject{account}) {
					t.Errorf("%+v", b)
				}
			}
		})
	}
}

// TestRulesOfOneNamespace checks that a server that is limited to a namespace has the rights to objects of namespaces
// there and in its own namespace, and everywhere no others than to objects without a namespace.
func TestRulesOfOneNamespace(t *testing.T) {
	const sets = "env.ENABLE_MCS_SERVICE_DISCOVERY=true,env.ENABLE_MCS_AUTO_EXPORT=true,env.PILOT_ENABLE_ALPHA_GATEWAY_API=true"
	whole := objects[rbacv1.ClusterRole](t, template(t, helms(t)[0], "istiod", chart(t, "istiod"), "--set", sets), "ClusterRole")
	out := template(t, helms(t)[0], "istiod", chart(t, "istiod"), "--set", sets+",env.ISTIO_WATCH_NAMESPACE=shop")
	everywhere := verbs(objects[rbacv1.ClusterRole](t, out, "ClusterRole")[0].Rules)
	for _, k := range kinds.All() {
		if name := strings.TrimSuffix(k.Plural+"."+k.Group, "."); !k.Cluster && everywhere[name] != "" {
			t.Errorf("%s in all namespaces: %s", name, everywhere[name])
		}
	}
	bound := map[string]bool{}
	for _, b := range objects[rbacv1.RoleBinding](t, out, "RoleBinding") {
		if len(b.Subjects) == 1 && b.Subjects[0].Name == "istiod" && b.Subjects[0].Namespace == "istio-system" {
			bound[b.Namespace+"/"+b.RoleRef.Name] = true
		}
	}
	var in []string
	for _, r := range objects[rbacv1.Role](t, out, "Role") {
		if r.Name != "istiod-clusterrole-istio-system" {
			continue
		}
		in = append(in, r.Namespace)
		all := maps.Clone(everywhere)
		maps.Copy(all, verbs(r.Rules))
		if d := cmp.Diff(verbs(whole[0].Rules), all); d != "" || !bound[r.Namespace+"/"+r.Name] {
			t.Errorf("namespace %s: bound %v, %s", r.Namespace, bound[r.Namespace+"/"+r.Name], d)
		}
	}
	if slices.Sort(in); !slices.Equal(in, []string{"istio-system", "shop"}) {
		t.Errorf("roles in %v", in)
	}
}

// The control plane of another cluster reads services and the Secrets that gateways need, and creates TokenReviews and
// SubjectAccessReviews. It has no other rights.
func TestRulesOfRemoteReaders(t *testing.T) {
	want := map[string]string{}
	for _, k := range []*kinds.Kind{kinds.Namespace, kinds.Node, kinds.Pod, kinds.Service, kinds.EndpointSlice, kinds.WorkloadEntry,
		kinds.ServiceExport, kinds.ServiceImport} {
		want[strings.TrimSuffix(k.Plural+"."+k.Group, ".")] = read
	}
	want["customresourcedefinitions.apiextensions.k8s.io"], want["tokenreviews.authentication.k8s.io"] = read, "create"
	want["secrets"], want["configmaps"], want["subjectaccessreviews.authorization.k8s.io"] = read, read, "create"
	roles := objects[rbacv1.ClusterRole](t, template(t, helms(t)[0], "base", chart(t, "base")), "ClusterRole")
	if len(roles) != 1 {
		t.Fatalf("%d cluster roles", len(roles))
	}
	if d := cmp.Diff(want, verbs(roles[0].Rules)); d != "" {
		t.Error(d)
	}
	for set, name := range map[string]string{
		"global.externalIstiod=true": "istio-ca-root-cert,istio-ca-crl",
		"global.externalIstiod=true,global.trustBundleName=a,crlConfigMapName=b":                          "a,b",
		"global.externalIstiod=true,global.trustBundleName=a,crlConfigMapName=b,pilot.crlConfigMapName=c": "a,c",
	} {
		roles := objects[rbacv1.ClusterRole](t, template(t, helms(t)[0], "base", chart(t, "base"), "--set", set), "ClusterRole")
		if got := verbs(roles[0].Rules); got["configmaps "+name] != "patch" {
			t.Errorf("%s: %v", set, got)
		}
	}
}
