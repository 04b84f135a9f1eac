package migration

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/names"
	"github.com/istiod-lite/istiod-lite/pilot/feature"
	"github.com/istiod-lite/istiod-lite/pilot/inspect"
	"github.com/istiod-lite/istiod-lite/registry/kube"
)

// Verdict is the effect of a move from istiod.
type Verdict struct {
	Objects  int       `json:"objects"`      // number of objects of Istio's kinds and the Gateway API's
	Same     int       `json:"objectsAlike"` // number of objects without a known difference from istiod
	InTheWay int       `json:"inTheWay"`     // number of points that are in the way
	Sections []Section `json:"sections"`
}

// Section holds the points about one subject.
type Section struct {
	Name   string  `json:"name"`
	Points []Point `json:"points"`
}

// Point is one statement about an object.
type Point struct {
	InTheWay bool   `json:"inTheWay,omitempty"`
	Text     string `json:"text"`
	Fix      string `json:"fix,omitempty"`
	Where    string `json:"where,omitempty"`
	Object   string `json:"object,omitempty"` // Kind namespace/name
}

// Add adds points to the section with a name, which is made if there is none.
func (v *Verdict) Add(name string, points ...Point) {
	if len(points) == 0 {
		return
	}
	for _, p := range points {
		if p.InTheWay {
			v.InTheWay++
		}
	}
	at := slices.IndexFunc(v.Sections, func(s Section) bool { return s.Name == name })
	if at < 0 {
		v.Sections = append(v.Sections, Section{Name: name})
		at = len(v.Sections) - 1
	}
	v.Sections[at].Points = append(v.Sections[at].Points, points...)
}

// Judge returns the effect of a move on the objects that an Inspection has read. revision is the revision of this
// control plane, or empty, and istiods are the revisions of istiod that run.
func Judge(i *inspect.Inspection, revision string, istiods []string) *Verdict {
	v := &Verdict{}
	for _, d := range i.Unreadable() { // objects that were not read cannot be judged
		v.Add("not looked at", Point{InTheWay: true, Text: d.Message, Fix: d.Fix})
	}
	v.objects(i, revision, istiods)
	if len(istiods) > 1 {
		v.Add("control planes", Point{Text: "several revisions of istiod run: " + strings.Join(istiods, ", "),
			Fix: "the verdict is for --revision: run the command once for each"})
	}
	if i.Refusal != nil {
		v.Add("objects", Point{InTheWay: true, Text: "the server would not start: " + i.Refusal.Error()})
	}
	v.proxies(i)
	return v
}

// Differs reports whether a finding is about a field that has an effect under istiod and none here.
func Differs(d diag.Diagnostic) bool {
	return slices.Contains([]string{
		"NotImplemented", "NotServed", "UnsupportedField", "Unusable", "Limit", "Refused", "PatchUnknown", "PatchLeftOut",
	}, d.Code) || d.Code == "IST0118" && d.Severity == diag.Error
}

// objects counts the objects that have the same effect under istiods of a list of revisions, and adds points about the
// others.
func (v *Verdict) objects(i *inspect.Inspection, revision string, istiods []string) {
	all, other := map[string]bool{}, map[string]bool{}
	objects := slices.SortedFunc(maps.Values(i.All()), func(a, b *kinds.Object) int { return cmp.Compare(a.String(), b.String()) })
	for _, o := range objects {
		if !ofIstio(o.Kind.Group) {
			continue
		}
		name := o.String()
		all[name] = true
		if rev := o.Labels[names.LabelRevision]; o.Kind.Istio && slices.Contains(istiods, rev) && rev != cmp.Or(revision, "default") {
			other[name] = true
			v.Add("objects", Point{InTheWay: true, Object: name,
				Text: fmt.Sprintf("%s: the label %s=%s hides it from control planes of other revisions", name, names.LabelRevision, rev),
				Fix:  "remove the label, or install this control plane with that revision once istiod is removed"})
		}
	}
	for _, o := range objects {
		if o.Kind.Istio && all[o.String()] && feature.TargetsServices(o) {
			other[o.String()] = true
			v.Add("objects", Point{InTheWay: true, Object: o.String(), Where: o.Position,
				Text: o.String() + ": it targets a service: istiod applies it at waypoints alone, and here it applies to the proxies of the workloads",
				Fix:  "see that it lets in what calls these workloads directly, or remove it"})
		}
	}
	for _, d := range i.Findings {
		p := Point{InTheWay: Differs(d), Text: findingText(d), Fix: d.Fix, Where: position(d), Object: d.Object}
		switch ofMesh := d.Object == "MeshConfig" || d.Object == "MeshNetworks"; {
		case ofMesh && d.Code == "Unusable":
			p.InTheWay = false // istiod does not use the object either, and other findings say why
			v.Add("wrong already", p)
		case p.InTheWay && (ofMesh || d.Object == ""):
			v.Add("mesh configuration", p)
		case p.InTheWay:
			other[d.Object] = all[d.Object]
			v.Add("objects", p)
		case d.Severity == diag.Error && (ofMesh || all[d.Object]): // istiod does not repair the object either
			v.Add("wrong already", p)
		case d.Severity == diag.Error && d.File != "":
			p.InTheWay = true
			v.Add("not looked at", p)
		}
	}
	v.Objects = len(all)
	for name := range all {
		if !other[name] {
			v.Same++
		}
	}
}

// findingText returns the subject and the message of a finding.
func findingText(d diag.Diagnostic) string {
	text := d.Message
	for _, about := range []string{d.Field, d.Object} {
		if about != "" {
			text = about + ": " + text
		}
	}
	return text
}

func position(d diag.Diagnostic) string {
	if d.File == "" {
		return ""
	}
	if d.Line == 0 {
		return d.File
	}
	return fmt.Sprintf("%s:%d:%d", d.File, d.Line, d.Column)
}

// proxies adds points about the images of the proxies.
func (v *Verdict) proxies(i *inspect.Inspection) {
	images := map[string]int{}
	for _, o := range i.All() {
		if o.Kind == kinds.Pod {
			if image := kube.FactsOfPod(o).ProxyImage; image != "" {
				images[image]++
			}
		}
	}
	for _, image := range slices.Sorted(maps.Keys(images)) {
		p := Point{Text: fmt.Sprintf("%d of %s: %s", images[image], image, kindOfImage(image))}
		v.Add("proxies", p)
	}
	if len(images) == 0 {
		v.Add("proxies", Point{Text: "no Pod has a proxy"})
	}
}

// kindOfImage describes a proxy by its image.
func kindOfImage(image string) string {
	name := image[strings.LastIndexByte(image, '/')+1:]
	switch base, _, _ := strings.Cut(name, ":"); {
	case strings.HasPrefix(base, "proxyv2"):
		return "Istio's proxy, which is supported; it stays until its Pod is replaced"
	case strings.HasPrefix(base, "envoy"):
		return "a stock Envoy without Istio's filters: its metrics and its metadata of peers are Envoy's own"
	}
	return "an unknown image: its capabilities are the extensions that it reports"
}
