package ui

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/istiod-lite/istiod-lite/pilot/envoy"
	"github.com/istiod-lite/istiod-lite/pilot/pushes"
)

// resourceRow is one resource that a proxy was sent.
type resourceRow struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Bytes   int    `json:"bytes"`
}

func (r resourceRow) matches(text, _, _ string) bool {
	return text == "" || strings.Contains(strings.ToLower(r.Name), text)
}

// dump returns the resources that a proxy was sent of a type, which the query gives by its short name, and the type
// URL.
func (u *UI) dump(q url.Values) ([]*envoy.Resource, string, error) {
	typeURL := envoy.TypeURLOf(q.Get("type"))
	if typeURL == "" {
		return nil, "", fmt.Errorf("%w: type=%s is none of %s", errQuery, q.Get("type"), strings.Join(envoy.ShortTypes(), ", "))
	}
	if q.Get("proxy") == "" {
		return nil, "", fmt.Errorf("%w: it names no proxy", errQuery)
	}
	list, _ := u.o.Proxies.Dump(q.Get("proxy"), typeURL)
	return list, typeURL, nil
}

// config lists the resources that a proxy was sent of a type.
func (u *UI) config(q url.Values, p page) (any, error) {
	list, _, err := u.dump(q)
	if err != nil {
		return nil, err
	}
	all := make([]resourceRow, len(list))
	for i, r := range list {
		all[i] = resourceRow{r.Name, r.Version, r.Size()}
	}
	return rowsOf(all, p), nil
}

// resource is one resource and the objects that it is made of.
type resource struct {
	resourceRow
	Type     string          `json:"type"`
	Sources  []pushes.Object `json:"sources"`
	Value    json.RawMessage `json:"value,omitempty"`    // only the set fields
	Defaults json.RawMessage `json:"defaults,omitempty"` // with default values
	Hidden   bool            `json:"hidden,omitempty"`   // a secret, whose content is not shown
}

// resource returns one resource of a proxy.
func (u *UI) resource(q url.Values) (any, error) {
	list, typeURL, err := u.dump(q)
	if err != nil {
		return nil, err
	}
	for _, r := range list {
		if r.Name != q.Get("name") {
			continue
		}
		out := resource{resourceRow: resourceRow{r.Name, r.Version, r.Size()}, Type: envoy.ShortType(typeURL), Sources: u.o.World.Sources(r)}
		if out.Sources == nil {
			out.Sources = []pushes.Object{}
		}
		if envoy.TypeOf(typeURL).Secret {
			out.Hidden = true
			return out, nil
		}
		m := &anypb.Any{TypeUrl: typeURL, Value: r.Value()}
		if out.Value, err = (protojson.MarshalOptions{}).Marshal(m); err != nil {
			return nil, fmt.Errorf("show %s: %w", r.Name, err)
		}
		if out.Defaults, err = (protojson.MarshalOptions{EmitDefaultValues: true}).Marshal(m); err != nil {
			return nil, fmt.Errorf("show %s: %w", r.Name, err)
		}
		return out, nil
	}
	return nil, errUnknown
}
