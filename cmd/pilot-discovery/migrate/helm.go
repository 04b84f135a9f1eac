package migrate

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	sigsyaml "sigs.k8s.io/yaml"

	"github.com/istiod-lite/istiod-lite/pilot/inspect/migration"
)

const (
	// helmReleases selects the Secrets and ConfigMaps of releases that have not been replaced or uninstalled.
	helmReleases = "owner=helm,status notin (superseded,uninstalled)"
	// mostOfRelease limits the JSON of a release. Helm itself cannot store more than 1 MiB, compressed.
	mostOfRelease = 64 << 20
	// releasesSection is the section of the verdict about releases of Helm.
	releasesSection = "releases of Helm"
)

// storedRelease is one revision of a release, as Helm stores it in a Secret or a ConfigMap.
type storedRelease struct {
	Name      string
	Namespace string
	Version   int
	Info      struct{ Status string }
	Chart     struct {
		Metadata chartMetadata
		Values   map[string]any
	}
	Config map[string]any
}

// chartMetadata is the part of a Chart.yaml that says which chart it is.
type chartMetadata struct {
	Name         string
	AppVersion   string
	Keywords     []string
	Sources      []string
	Dependencies []chartDependency
}

// chartDependency is a chart that a parent chart installs.
type chartDependency struct{ Name, Alias, Repository string }

// isStored reports whether Helm stores a release in an object.
func isStored(o migration.Object) bool {
	return (o.GetKind() == "Secret" || o.GetKind() == "ConfigMap") && strings.HasPrefix(o.GetName(), "sh.helm.release.v1.")
}

// decodeRelease returns the release that an object stores.
func decodeRelease(o migration.Object) (*storedRelease, error) {
	text := o.Field("data", "release")
	if text == "" {
		return nil, errors.New("the key release is empty")
	}
	if o.GetKind() == "Secret" { // the data of a Secret is encoded once more
		outer, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, err
		}
		text = string(outer)
	}
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil, err
		}
		if data, err = io.ReadAll(io.LimitReader(z, mostOfRelease+1)); err != nil {
			return nil, err
		}
		if len(data) > mostOfRelease {
			return nil, fmt.Errorf("it has more than %d bytes", mostOfRelease)
		}
	}
	r := &storedRelease{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, err
	}
	if r.Chart.Metadata.Name == "" {
		return nil, errors.New("it names no chart")
	}
	return r, nil
}

// helmStore collects the releases of a cluster.
type helmStore struct {
	releases map[string]*storedRelease // the last deployed one, by namespace and name
	points   []migration.Point
}

// take adds the release that an object stores, if its chart is one of Istio's or this project's.
func (h *helmStore) take(o migration.Object) {
	r, err := decodeRelease(o)
	if err != nil {
		h.points = append(h.points, migration.Point{InTheWay: true, Where: o.Named(),
			Text: fmt.Sprintf("%s: a release cannot be read: %v", o.Named(), err),
			Fix:  "give its values by --values, as `helm get values` prints them"})
		return
	}
	r.Namespace = cmp.Or(r.Namespace, o.GetNamespace())
	if len(r.charts()) == 0 {
		return
	}
	switch r.Info.Status {
	case "superseded", "uninstalled", "uninstalling":
		return
	case "deployed":
	default:
		h.points = append(h.points, migration.Point{Where: o.Named(),
			Text: fmt.Sprintf("revision %d of release %s is %s: its values were not read", r.Version, r.key(),
				cmp.Or(r.Info.Status, "without a status")),
			Fix: "the values are of the revision that is deployed: see which of the two runs"})
		return
	}
	if h.releases == nil {
		h.releases = map[string]*storedRelease{}
	}
	if old := h.releases[r.key()]; old == nil || old.Version < r.Version {
		h.releases[r.key()] = r
	}
}

func (r *storedRelease) key() string { return r.Namespace + "/" + r.Name }

// own reports whether the chart is one of this project.
func (r *storedRelease) own() bool { return strings.Contains(r.Chart.Metadata.AppVersion, "-lite") }

// chartKey is a chart in a release, and the key of its values, which is empty if all values are for it.
type chartKey struct{ chart, key string }

// charts returns the charts of Istio or of this project that the release installs.
func (r *storedRelease) charts() (list []chartKey) {
	m := r.Chart.Metadata
	ofIstio := func(s string) bool { return strings.Contains(s, "istio") }
	known := func(name string) string {
		switch {
		case name == "istio-discovery": // the older name of the chart
			return "istiod"
		case slices.Contains(chartNames(), name):
			return name
		}
		return ""
	}
	if chart := known(m.Name); chart == "istiod" || chart != "" && slices.ContainsFunc(slices.Concat(m.Keywords, m.Sources), ofIstio) {
		return []chartKey{{chart, ""}}
	}
	whole := slices.ContainsFunc(m.Dependencies, func(d chartDependency) bool { return known(d.Name) == "istiod" })
	for _, d := range m.Dependencies {
		if chart := known(d.Name); chart != "" && (whole || ofIstio(d.Repository)) { // any project may name a chart base
			list = append(list, chartKey{chart, cmp.Or(d.Alias, d.Name)})
		}
	}
	return list
}

// values returns the values that the user gave to each chart of the release. A parent chart's own values are the
// user's too.
func (r *storedRelease) values() (list []*release, err error) {
	charts := r.charts()
	judged := max(0, slices.IndexFunc(charts, func(c chartKey) bool { return c.chart == "istiod" })) // as in passGlobal
	for i, c := range charts {
		values := r.Config
		if c.key != "" {
			values = map[string]any{}
			for _, from := range []map[string]any{r.Config, r.Chart.Values} { // the first one is in force
				part, _ := from[c.key].(map[string]any)
				addMissing(values, part)
				if global, ok := from["global"].(map[string]any); ok {
					addMissing(values, map[string]any{"global": global})
				}
			}
		}
		text, err := sigsyaml.Marshal(values)
		if err != nil {
			return nil, fmt.Errorf("release %s: %w", r.key(), err)
		}
		made, err := releaseFrom(c.chart, "release "+r.key(), text)
		if err != nil {
			return nil, err
		}
		if c.chart == "gateway" || oldGateways()[c.chart] != "" {
			made.name = gatewayName(r.Name, r.Namespace)
		}
		made.parent, made.global = c.key != "", i != judged
		list = append(list, made)
	}
	return list, nil
}

// addMissing adds the values of a map that another map has not. It does not change the first map's parts.
func addMissing(to, from map[string]any) {
	for key, value := range from {
		part, ofBoth := value.(map[string]any)
		old, exists := to[key]
		switch oldPart, isMap := old.(map[string]any); {
		case !exists && ofBoth:
			made := map[string]any{}
			addMissing(made, part)
			to[key] = made
		case !exists:
			to[key] = value
		case ofBoth && isMap:
			addMissing(oldPart, part)
		}
	}
}
