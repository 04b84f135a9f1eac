package crd

import (
	"encoding/json"

	"github.com/istiod-lite/istiod-lite/api/jwks"
	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/api/limits"
	"github.com/istiod-lite/istiod-lite/galley/validation"
)

// closed returns the strictest object of a security kind, to stand in for one that cannot be used: an
// AuthorizationPolicy that denies everything, or, where it is one of action ALLOW, allows nothing; a
// PeerAuthentication that takes only mTLS; a RequestAuthentication that accepts no token. It selects what the text
// selects, if that much can be understood, else the whole namespace. It is nil only if the text has no metadata to
// take.
func closed(l limits.Limits, key kinds.Key, data []byte) *kinds.Object {
	var text struct {
		Metadata json.RawMessage            `json:"metadata"`
		Spec     map[string]json.RawMessage `json:"spec"`
	}
	if err := json.Unmarshal(data, &text); err != nil {
		text.Spec = nil
		var meta struct {
			Metadata json.RawMessage `json:"metadata"`
		}
		if err := json.Unmarshal(data, &meta); err != nil {
			return nil
		}
		text.Metadata = meta.Metadata
	}
	for _, fields := range [][]string{{"selector", "targetRef", "targetRefs"}, nil} {
		spec := map[string]any{}
		for _, f := range fields {
			if v, ok := text.Spec[f]; ok {
				spec[f] = v
			}
		}
		if action := string(text.Spec["action"]); key.Kind == kinds.AuthorizationPolicy && (text.Spec == nil || action != "" && action != `"ALLOW"`) {
			spec["action"], spec["rules"] = "DENY", []map[string]string{{}}
			if action == `"AUDIT"` { // it would not have refused anything
				spec["action"], spec["rules"] = "AUDIT", nil
			}
		}
		if key.Kind == kinds.PeerAuthentication {
			spec["mtls"] = json.RawMessage(`{"mode":"STRICT"}`)
		}
		if key.Kind == kinds.RequestAuthentication {
			spec["jwtRules"] = []map[string]string{{"issuer": "unusable", "jwks": jwks.Nobody}}
		}
		standIn, err := json.Marshal(map[string]any{"metadata": text.Metadata, "spec": spec})
		if err != nil {
			return nil
		}
		if o := validation.Object(l, key.Kind, standIn).Object; o != nil {
			o.Key = key
			return o
		}
	}
	return nil
}
