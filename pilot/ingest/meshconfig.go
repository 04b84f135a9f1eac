package ingest

import (
	"cmp"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"

	meshv1alpha1 "istio.io/api/mesh/v1alpha1"

	"github.com/istiod-lite/istiod-lite/api/diag"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/lists"
	"github.com/istiod-lite/istiod-lite/api/mesh"
)

// defaultMesh is the mesh configuration if none is given. Its root namespace is the server's namespace.
func defaultMesh(o Options) *mesh.Config {
	c := mesh.Default()
	c.RootNamespace, c.Compliance = o.Namespace, o.Compliance
	sampleTraces(o, c)
	return c
}

// sampleTraces sets the sampling percentage of the server's environment in a mesh configuration without one. The caller
// must own the mesh configuration.
func sampleTraces(o Options, c *mesh.Config) {
	if o.TraceSampling == 0 || c.GetDefaultConfig().GetTracing().GetSampling() != 0 {
		return
	}
	p := proto.CloneOf(c.DefaultConfig)
	if p.Tracing == nil {
		p.Tracing = &meshv1alpha1.Tracing{}
	}
	p.Tracing.Sampling = o.TraceSampling
	c.DefaultConfig = p
}

// meshName is the name of the ConfigMap with the mesh configuration: istio, or istio-<revision>.
func meshName(o Options) string {
	if o.Revision == "" || o.Revision == "default" {
		return "istio"
	}
	return "istio-" + o.Revision
}

// meshKey is the ConfigMap that holds the mesh configuration and the networks.
func (o Options) meshKey() kinds.Key {
	return kinds.Key{Kind: kinds.ConfigMap, Namespace: o.Namespace, Name: meshName(o)}
}

// meshKeys returns the ConfigMaps that hold the mesh configuration, in increasing order of precedence.
func (o Options) meshKeys() []kinds.Key {
	if o.SharedMesh == "" {
		return []kinds.Key{o.meshKey()}
	}
	return []kinds.Key{{Kind: kinds.ConfigMap, Namespace: o.Namespace, Name: o.SharedMesh}, o.meshKey()}
}

// isMesh reports whether that ConfigMap or file is a part of the mesh configuration.
func (o Options) isMesh(k kinds.Key) bool {
	return slices.Contains(o.meshKeys(), k) || k == meshFileKey(o.Namespace, "mesh") || k == meshFileKey(o.Namespace, "meshNetworks")
}

// meshLayer is the text of one ConfigMap or file with a part of the mesh configuration.
type meshLayer struct {
	data   string
	object string // ConfigMap, or the stand-in of a file
	// file locates the text in findings: the file, with line and column for a ConfigMap in a file, or the ConfigMap and
	// key.
	file string
	// missing is true if --sharedMeshConfig names a ConfigMap that does not exist. keyless is true if the ConfigMap has
	// no key mesh, and forNetworks if it has the key meshNetworks instead. binary is the key if it is in binaryData.
	missing, keyless, forNetworks bool
	binary                        string
}

// lacks returns why a ConfigMap has no text, and the fix. Both are empty if it has one.
func (l meshLayer) lacks() (why, fix string) {
	switch {
	case l.missing:
		return l.object + " is missing, which --sharedMeshConfig names", "create it, or correct --sharedMeshConfig (SHARED_MESH_CONFIG)"
	case l.binary != "":
		return l.object + " has the key " + l.binary + " in binaryData, which is not read", "write the text under data"
	case l.keyless:
		return l.object + " has no key mesh", "write the mesh configuration under the key mesh"
	}
	return "", ""
}

// layers returns the texts of a key of the mesh's ConfigMaps in increasing order of precedence, the shared one first. A
// file replaces the key in the mesh's own ConfigMap.
func layers(o Options, object func(kinds.Key) *kinds.Object, key string) []meshLayer {
	names := []string{meshName(o)}
	if o.SharedMesh != "" && o.SharedMesh != names[0] {
		names = []string{o.SharedMesh, names[0]}
	}
	if object(meshFileKey(o.Namespace, key)) != nil {
		names[len(names)-1] = meshFileKey(o.Namespace, key).Name
	}
	var out []meshLayer
	for _, name := range names {
		k := kinds.Key{Kind: kinds.ConfigMap, Namespace: o.Namespace, Name: name}
		cm := object(k)
		if cm == nil {
			if key == "mesh" && name == o.SharedMesh && len(names) > 1 {
				out = append(out, meshLayer{object: k.String(), file: k.String(), missing: true})
			}
			continue
		}
		spec := cm.Spec.(*corev1.ConfigMap)
		text, ok := spec.Data[key]
		_, binary := spec.BinaryData[key]
		if ok || binary || key == "mesh" {
			_, networks := spec.Data["meshNetworks"]
			at := cmp.Or(cm.Position, cm.String()+", key "+key)
			l := meshLayer{data: text, object: cm.String(), file: at, keyless: !ok, forNetworks: !ok && !binary && networks}
			if binary && !ok {
				l.binary = key
			}
			out = append(out, l)
		}
	}
	return out
}

// placed replaces the positions in findings by positions in files, for texts in a ConfigMap that is in a file.
func (o Options) placed(list []diag.Diagnostic, texts []meshLayer, key string) []diag.Diagnostic {
	for i := range list {
		d := &list[i]
		in := slices.IndexFunc(texts, func(l meshLayer) bool { return l.file == d.File })
		if in < 0 {
			continue
		}
		at := diag.Diagnostic{}.At(d.File)
		if at.File == "" {
			continue
		}
		positions, object, field := o.positions(at.File), texts[in].object, "data."+key
		line, column, ok := positions.Within(object, field, d.Line, d.Column)
		if !ok {
			if d.Line > 0 {
				d.Message = fmt.Sprintf("line %d, column %d of %s: %s", d.Line, d.Column, field, d.Message)
			}
			if line, column, ok = positions.Of(object, field); !ok {
				line, column = at.Line, at.Column
			}
		}
		d.File, d.Line, d.Column = at.File, line, column
	}
	return list
}

// meshReading is the result of readMesh.
type meshReading struct {
	config   *mesh.Config // nil if unusable is not empty
	findings []diag.Diagnostic
	from     string // name of the text with the highest precedence
	unusable string // why a text without last good content is unusable, or empty
}

// readMesh merges the texts of the mesh configuration. used has the last text in use of each ConfigMap and file. It
// replaces a missing text or a text with errors. If there is none, the text is used without the fields that have
// errors, unless that removes a restriction.
func readMesh(o Options, object func(kinds.Key) *kinds.Object, used map[string]string) meshReading {
	r := meshReading{config: defaultMesh(o), from: "defaults"}
	for _, l := range layers(o, object, "mesh") {
		if why, fix := l.lacks(); why != "" {
			last, was := used[l.object]
			if !was && l.forNetworks {
				continue
			}
			instead := notReady
			if was {
				instead = "its last good content stays in force"
			}
			r.findings = append(r.findings, diag.Diagnostic{
				Severity: diag.Error, Code: "Unusable", Object: "MeshConfig", File: l.file, Message: why + ": " + instead, Fix: fix,
			})
			if !was {
				r.config, r.unusable = nil, why
				return r
			}
			l.data = last
		}
		r.from = l.file
		next, wrong := mesh.ParseOver(r.config, l.file, []byte(l.data))
		r.findings = append(r.findings, wrong...)
		if next != nil {
			used[l.object], r.config = l.data, next
			continue
		}
		instead := "its last good content is used until the errors are mended"
		last, was := used[l.object]
		if !was || last == l.data {
			last, instead = l.data, "the fields with errors are left out when a server starts, and one that runs keeps its last good content"
		}
		if next, _ = mesh.Salvage(r.config, l.file, []byte(last)); next == nil {
			instead, r.unusable = notReady, "the one in "+l.file+" has errors"
		} else {
			used[l.object] = last
		}
		r.findings = append(r.findings, diag.Diagnostic{
			Severity: diag.Error, Code: "Unusable", Object: "MeshConfig", File: l.file, Message: "the mesh configuration has errors: " + instead,
			Fix: "correct the errors that the other findings of it name",
		})
		if next == nil {
			r.config = nil
			return r
		}
		r.config = next
	}
	sampleTraces(o, r.config)
	return r
}

// notReady says what happens if a text is unusable and has no last good content.
const notReady = "a server that starts is not ready until that is mended, and one that runs keeps the mesh configuration that it has"

// networksReading is the result of readNetworks.
type networksReading struct {
	networks *mesh.Networks // nil if none are configured, or if unusable is not empty
	findings []diag.Diagnostic
	from     string // name of the text in force
	unusable string // name of an unusable text, or empty
}

// readNetworks parses the networks. Only the last text is used, because networks are not merged.
func readNetworks(texts []meshLayer) networksReading {
	r := networksReading{from: "none"}
	for _, l := range texts {
		r.from, r.unusable = l.file, ""
		if why, fix := l.lacks(); l.binary != "" {
			r.networks, r.unusable = nil, l.file
			r.findings = []diag.Diagnostic{{Severity: diag.Error, Code: "Unusable", Object: "MeshNetworks", File: l.file, Message: why, Fix: fix}}
			continue
		}
		if r.networks, r.findings = mesh.ParseNetworks(l.file, []byte(l.data)); r.networks == nil {
			r.unusable = l.file
		}
	}
	return r
}

// applyMesh puts the mesh configuration in force and reports whether the registries must be rebuilt.
func (w *World) applyMesh() (rebuild bool) {
	object := func(k kinds.Key) *kinds.Object { return w.objects[k].object }
	r := readMesh(w.o, object, w.usedMesh)
	c, found := r.config, r.findings
	if r.unusable != "" {
		c = w.mesh // only while running: Sources does not let a server start without a usable mesh configuration
	}
	w.mu.Lock()
	changed := w.filter.selectNamespaces(c.NamespaceSelectors())
	w.mu.Unlock()
	texts := layers(w.o, object, "mesh")
	found = w.o.placed(found, texts, "mesh")
	w.reselect = w.reselect || changed
	w.setFindings("mesh", found)
	if !c.Equal(w.mesh) {
		rebuild = c.GetTrustDomain() != w.mesh.GetTrustDomain() || !c.EntryVisibility().Equal(w.mesh.EntryVisibility())
		w.mesh = c
		w.logger.Info("mesh configuration in force", "from", r.from)
	}

	w.setFindings("unsupported", w.o.placed(located(w.parts.Catalog.UnsupportedMesh(c), texts), texts, "mesh"))

	texts = layers(w.o, object, "meshNetworks")
	read := readNetworks(texts)
	n := read.networks
	if read.unusable != "" {
		n = w.networks // last good ones
	}
	w.setFindings("meshNetworks", w.o.placed(read.findings, texts, "meshNetworks"))
	if same := n == w.networks || n != nil && w.networks != nil && n.Equal(w.networks); !same {
		w.networks, rebuild = n, true
		w.logger.Info("mesh networks in force", "from", read.from)
	}
	return rebuild
}

// located adds to each finding about a field the last text that sets it and its position there, and sorts them by
// position.
func located(list []diag.Diagnostic, texts []meshLayer) []diag.Diagnostic {
	for i := range list {
		for _, l := range slices.Backward(texts) {
			if line, column, ok := mesh.Locate([]byte(l.data), list[i].Field); ok {
				list[i].File, list[i].Line, list[i].Column = l.file, line, column
				break
			}
		}
	}
	slices.SortStableFunc(list, func(a, b diag.Diagnostic) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return list
}

// setFindings replaces the findings of one group, and logs the new ones.
func (w *World) setFindings(key string, list []diag.Diagnostic) {
	w.mu.Lock()
	before := w.findings[key]
	w.findings[key] = list
	w.mu.Unlock()
	if slices.Equal(before, list) {
		return
	}
	known := lists.Set(before)
	logFindings(w.logger, slices.DeleteFunc(slices.Clone(list), func(d diag.Diagnostic) bool { return known[d] }))
}
