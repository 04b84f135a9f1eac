package injector

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/api/lists"
)

// status is the annotation sidecar.istio.io/status: the parts that were added to a pod.
type status struct {
	InitContainers   []string `json:"initContainers"`
	Containers       []string `json:"containers"`
	Volumes          []string `json:"volumes"`
	ImagePullSecrets []string `json:"imagePullSecrets"`
	Revision         string   `json:"revision"`
}

// overrides is the annotation proxy.istio.io/overrides: the user's versions of containers that a template has too. A
// second injection starts from them.
type overrides struct {
	Containers     []corev1.Container `json:"containers,omitempty"`
	InitContainers []corev1.Container `json:"initContainers,omitempty"`
}

// mergedContainer returns a container with a patch applied, by the rules of a strategic merge.
func mergedContainer(base *corev1.Container, patch []byte) (*corev1.Container, error) {
	from, err := json.Marshal(base)
	if err != nil {
		return nil, err
	}
	out, err := strategicpatch.StrategicMergePatch(from, patch, corev1.Container{})
	if err != nil {
		return nil, err
	}
	c := &corev1.Container{}
	return c, json.Unmarshal(out, c)
}

// rendering is a pod with the templates' output, and the same output merged into an empty pod.
type rendering struct {
	pod, template *corev1.Pod
}

// written is the parsed output of a pod's templates. It is immutable.
type written struct {
	names  []string         // names of the templates
	maps   []map[string]any // output of each template
	pod    *corev1.Pod      // all outputs merged into an empty pod
	native bool             // the proxy is an init container
}

// read parses the output texts of templates.
func (i *Injector) read(names, texts []string) (*written, error) {
	var key strings.Builder
	for n, text := range texts {
		fmt.Fprintf(&key, "%s %d ", names[n], len(text))
		key.WriteString(text)
	}
	if w, ok := i.written.Get(key.String()); ok {
		return w, nil
	}
	w := &written{names: names}
	for n, text := range texts {
		if err := w.add(names[n], text); err != nil {
			return nil, err
		}
	}
	var err error
	if w.pod, err = w.merged(map[string]any{}); err != nil {
		return nil, err
	}
	if key.Len() <= maxWrittenBytes {
		i.written.Add(key.String(), w)
	}
	return w, nil
}

func (w *written) add(name, text string) error {
	patch, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		return fmt.Errorf("what template %s writes for this pod is no YAML: %w", name, err)
	}
	var pod corev1.Pod
	if err := json.Unmarshal(patch, &pod); err != nil {
		return fmt.Errorf("what template %s writes for this pod is no pod: %w", name, err)
	}
	m := map[string]any{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(patch, &m); err != nil {
		return fmt.Errorf("what template %s writes for this pod is no pod: %w", name, err)
	}
	renameFields(m, reflect.TypeFor[corev1.Pod]())
	if err := checkLists("", m); err != nil {
		return fmt.Errorf("what template %s writes for this pod: %w", name, err)
	}
	w.maps = append(w.maps, m)
	w.native = w.native || named(pod.Spec.InitContainers, proxyContainer) >= 0
	return nil
}

// merged returns a pod, given in JSON form, with the templates' output applied by the rules of a strategic merge. It
// does not change the argument.
func (w *written) merged(pod map[string]any) (*corev1.Pod, error) {
	into := strategicpatch.JSONMap(runtime.DeepCopyJSON(pod))
	for n, m := range w.maps {
		var err error
		if into, err = strategicpatch.StrategicMergeMapPatch(into, runtime.DeepCopyJSON(m), corev1.Pod{}); err != nil {
			return nil, fmt.Errorf("what template %s writes cannot be merged into this pod: %w", w.names[n], err)
		}
	}
	out := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(into, out); err != nil {
		return nil, fmt.Errorf("what templates %s write is no pod: %w", strings.Join(w.names, ", "), err)
	}
	return out, nil
}

// named returns the index of a container, or -1.
func named(list []corev1.Container, name string) int {
	return slices.IndexFunc(list, func(c corev1.Container) bool { return c.Name == name })
}

// reapply merges the user's versions of containers over the templates', and returns the user's versions: the user's
// settings of the proxy take precedence. The image auto stands for the template's image.
func reapply(list, users, template []corev1.Container) (kept []corev1.Container, err error) {
	for _, user := range users {
		at := named(list, user.Name)
		if at < 0 || named(template, user.Name) < 0 {
			continue
		}
		if user.Image == "auto" {
			user.Image = ""
		}
		patch, err := json.Marshal(user)
		if err != nil {
			return nil, err
		}
		c, err := mergedContainer(&list[at], patch)
		if err != nil {
			return nil, fmt.Errorf("merge container %s: %w", user.Name, err)
		}
		list[at] = *c
		kept = append(kept, user)
	}
	return kept, nil
}

// original returns the pod as templates see it, and the user's versions of its containers. It leaves out the containers
// that the pod's annotations name as added by an earlier injection. They stay in the pod itself, and templates are
// merged over them again, because another client may have changed them since.
func original(pod *corev1.Pod) (seen *corev1.Pod, users overrides, err error) {
	var was status
	text, again := pod.Annotations[statusAnnotation]
	if again {
		_ = json.Unmarshal([]byte(text), &was) // an invalid value, written by another client, is ignored
	}
	if text, ok := pod.Annotations[overridesAnnotation]; ok {
		lists, err := decode([]byte(text))
		if err == nil {
			err = json.Unmarshal([]byte(text), &users)
		}
		if err != nil {
			return nil, users, badAnnotation(overridesAnnotation, text, err)
		}
		if err := checkLists("", lists); err != nil {
			return nil, users, fmt.Errorf("annotation %s: %w", overridesAnnotation, err)
		}
	}
	users.Containers = restored(pod.Spec.Containers, was.Containers, users.Containers)
	users.InitContainers = restored(pod.Spec.InitContainers, was.InitContainers, users.InitContainers)
	if !again {
		return pod, users, nil
	}
	seen = pod.DeepCopy()
	seen.Spec.Containers, seen.Spec.InitContainers = users.Containers, users.InitContainers
	return seen, users, nil
}

// restored returns containers without the added ones, and with the user's versions of the changed ones.
func restored(list []corev1.Container, added []string, users []corev1.Container) (out []corev1.Container) {
	for _, c := range list {
		if at := named(users, c.Name); at >= 0 {
			out = append(out, users[at])
		} else if !slices.Contains(added, c.Name) {
			out = append(out, c)
		}
	}
	return out
}

// reapply merges the user's versions of the templates' containers over them, and records them in the pod.
func (r *rendering) reapply(users overrides) error {
	var kept overrides
	var err error
	s, t := &r.pod.Spec, &r.template.Spec
	if kept.Containers, err = reapply(s.Containers, users.Containers, t.Containers); err != nil {
		return err
	}
	if kept.InitContainers, err = reapply(s.InitContainers, users.InitContainers, t.InitContainers); err != nil {
		return err
	}
	if len(kept.Containers)+len(kept.InitContainers) == 0 {
		return nil
	}
	text, err := toJSON(kept)
	r.pod.Annotations[overridesAnnotation] = text
	return err
}

// nativeProxy moves the proxy's container of a pod to the init containers if a template has it there. It reports
// whether it moved the container.
func nativeProxy(pod *corev1.Pod, users *overrides) bool {
	take := func(list, to *[]corev1.Container) bool {
		at := named(*list, proxyContainer)
		if at < 0 {
			return false
		}
		if named(*to, proxyContainer) < 0 {
			*to = append(slices.Clone(*to), (*list)[at])
		}
		*list = slices.Delete(slices.Clone(*list), at, at+1)
		return true
	}
	take(&users.Containers, &users.InitContainers)
	return take(&pod.Spec.Containers, &pod.Spec.InitContainers)
}

// namesOf returns the names of list's entries, or nil if there are none.
func namesOf[T any](list []T, name func(T) string) (out []string) {
	return lists.Map(list, name)
}

func containerName(c corev1.Container) string { return c.Name }

// proxyOf returns the proxy's container, which may be an init container, or nil.
func proxyOf(pod *corev1.Pod) *corev1.Container {
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		if at := named(list, proxyContainer); at >= 0 {
			return &list[at]
		}
	}
	return nil
}

// setVariable sets a variable of a container's environment, and moves it to the end.
func setVariable(c *corev1.Container, name, value string) {
	c.Env = slices.DeleteFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == name })
	c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: value})
}

// variable returns the value of a container's environment variable, or "".
func variable(c *corev1.Container, name string) string {
	if c != nil {
		for _, e := range c.Env {
			if e.Name == name {
				return e.Value
			}
		}
	}
	return ""
}

// move moves a container to the beginning or the end of a list.
func move(list []corev1.Container, name string, first bool) []corev1.Container {
	at := named(list, name)
	if at < 0 {
		return list
	}
	c := list[at]
	list = slices.Delete(slices.Clone(list), at, at+1)
	if first {
		return slices.Insert(list, 0, c)
	}
	return append(list, c)
}

// order sorts the containers. A container that redirects traffic runs after the user's own init containers, which so
// reach the network, unless the proxy is an init container itself and runs before them. A container that validates the
// redirection runs first.
func order(pod *corev1.Pod, hold bool) {
	s := &pod.Spec
	s.Containers = move(s.Containers, proxyContainer, hold)
	native := named(s.InitContainers, proxyContainer) >= 0
	if native {
		s.InitContainers = move(s.InitContainers, proxyContainer, true)
	}
	s.InitContainers = move(s.InitContainers, "istio-init", native)
	s.InitContainers = move(s.InitContainers, "istio-validation", true)
}
