package analysis

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	networkingv1beta1 "istio.io/api/networking/v1beta1"
	corev1 "k8s.io/api/core/v1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
)

// InjectorMap is the ConfigMap of injection. The name of a revision's ConfigMap is this with a dash and the revision.
const InjectorMap = "istio-sidecar-injector"

// proxyImages reports namespaces with Pods whose proxy image differs from the image that a new Pod would get. It needs
// the ConfigMap of injection, which files may contain and analyze reads from a cluster. A server's own analysis does
// not have it.
func (a *analysis) proxyImages() {
	images := map[string]string{} // image by revision
	for _, o := range a.of(kinds.ConfigMap) {
		if m, ok := o.Spec.(*corev1.ConfigMap); ok && o.Namespace == a.root {
			if rest, ours := strings.CutPrefix(o.Name, InjectorMap); ours && (rest == "" || rest[0] == '-') {
				images[cmp.Or(strings.TrimPrefix(rest, "-"), "default")] = injectedImage(m.Data["values"],
					a.mesh.GetDefaultConfig().GetImage().GetImageType())
			}
		}
	}
	if len(images) == 0 {
		return
	}
	wanted := map[string]string{} // wanted image by namespace
	for _, o := range a.of(kinds.Namespace) {
		switch word := o.Labels[names.LabelInjection]; word {
		case "enabled":
			wanted[o.Name] = images["default"]
		case "":
			wanted[o.Name] = images[o.Labels[names.LabelRevision]]
		}
	}
	for _, o := range a.of(kinds.ProxyConfig) { // the image type that it sets is ignored here
		if o.Spec.(*networkingv1beta1.ProxyConfig).GetImage() != nil {
			delete(wanted, o.Namespace)
			if o.Namespace == a.root {
				return
			}
		}
	}
	others := map[string][]string{}
	for _, w := range a.pods {
		o := w.object
		if strings.Contains(o.Annotations[names.AnnotationProxyConfig], "image") {
			continue
		}
		want := cmp.Or(o.Annotations[names.AnnotationProxyImage], wanted[o.Namespace])
		if image := w.pod.ProxyImage; image != "" && wanted[o.Namespace] != "" && image != want {
			others[o.Namespace] = append(others[o.Namespace], o.Name)
		}
	}
	for _, o := range a.of(kinds.Namespace) {
		if pods := others[o.Name]; len(pods) > 0 {
			a.report(o, diag.Warning, codeProxyImage, "metadata.name", "replace them: run kubectl rollout restart for their controllers",
				"the proxy image of these Pods is not %s, which new Pods get: %s", wanted[o.Name], listed(slices.Clone(pods)))
		}
	}
}

// injectedImage returns the proxy image in the values of an injection ConfigMap, with the image type of the mesh. It
// returns "" if the values have none.
func injectedImage(values, imageType string) string {
	var v struct {
		Global struct {
			Hub, Variant string
			Tag          any // a number, if it is not quoted
			Proxy        struct{ Image string }
		}
	}
	if json.Unmarshal([]byte(values), &v) != nil {
		return ""
	}
	g := v.Global
	image := cmp.Or(g.Proxy.Image, "proxyv2")
	if strings.Contains(image, "/") {
		return image
	}
	tag, ok := g.Tag.(string)
	if !ok || tag == "" || g.Hub == "" {
		return ""
	}
	imageType = cmp.Or(imageType, g.Variant)
	for _, known := range []string{"-distroless", "-debug"} {
		if imageType != "" {
			tag = strings.TrimSuffix(tag, known)
		}
	}
	if imageType != "" && imageType != "default" {
		tag += "-" + imageType
	}
	return g.Hub + "/" + image + ":" + tag
}
