package injector

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
)

// data is the input of templates. Its field names are a public interface, because users write templates.
type data struct {
	TypeMeta                 metav1.TypeMeta      // kind of the workload
	DeploymentMeta           types.NamespacedName // name of the workload
	ObjectMeta               metav1.ObjectMeta    // metadata of the pod
	Spec                     corev1.PodSpec
	ProxyConfig              proxyConfig
	MeshConfig               *meshv1alpha1.MeshConfig
	Values                   map[string]any
	Revision                 string
	NativeSidecars           bool
	ProxyImage               string
	ProxyInitImage           string
	ProxyUID, ProxyGID       int64 // from the user's own proxy container, else the default of the images
	InboundTrafficPolicyMode string
	CompliancePolicy         string
}

type proxyConfig = *meshv1alpha1.ProxyConfig

// workload returns the workload of a pod, derived from its owner: the name of a ReplicaSet is its Deployment's name
// with a hash, and the name of a Job that a CronJob created ends with the minute.
func workload(pod *corev1.Pod) (metav1.TypeMeta, types.NamespacedName) {
	kind := metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
	meta := types.NamespacedName{Name: pod.Name, Namespace: pod.Namespace}
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return kind, meta
	}
	kind, meta.Name = metav1.TypeMeta{Kind: owner.Kind, APIVersion: owner.APIVersion}, owner.Name
	switch owner.Kind {
	case "ReplicaSet":
		if rollout := pod.Labels["rollouts-pod-template-hash"]; rollout != "" && strings.HasSuffix(owner.Name, "-"+rollout) {
			meta.Name = strings.TrimSuffix(owner.Name, "-"+rollout)
			kind = metav1.TypeMeta{Kind: "Rollout", APIVersion: "v1alpha1"}
			break
		}
		if hash := pod.Labels["pod-template-hash"]; hash != "" && strings.HasSuffix(owner.Name, "-"+hash) {
			meta.Name = strings.TrimSuffix(owner.Name, "-"+hash)
			kind.Kind = "Deployment"
		}
	case "ReplicationController":
		if name := pod.Labels["deploymentconfig"]; name != "" && strings.HasPrefix(owner.Name, name+"-") {
			meta.Name = name
			kind.Kind = "DeploymentConfig"
		}
	case "Job":
		if i := strings.LastIndexByte(owner.Name, '-'); i > 0 && minute(owner.Name[i+1:]) {
			meta.Name = owner.Name[:i]
			kind.Kind = "CronJob"
		}
	}
	return kind, meta
}

// minute reports whether a text is the suffix that a CronJob gives its Jobs: minutes or seconds since 1970.
func minute(s string) bool {
	return len(s) >= 8 && len(s) <= 10 && strings.Trim(s, "0123456789") == ""
}

// image returns the full name of a proxy's image. kind is the type of the image, such as distroless.
func (s *settings) image(name, kind string) string {
	if strings.Contains(name, "/") {
		return name
	}
	image := s.Global.Hub + "/" + nonEmpty(name, "proxyv2")
	tag := text(s.Global.Tag)
	if tag == "" {
		return image
	}
	kind = nonEmpty(kind, s.Global.Variant)
	for _, known := range []string{"-distroless", "-debug"} {
		if kind != "" {
			tag = strings.TrimSuffix(tag, known)
		}
	}
	if kind != "" && kind != "default" {
		tag += "-" + kind
	}
	return image + ":" + tag
}
