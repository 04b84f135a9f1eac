package substitution

import "testing"

// TestRecent: a command of a newer Envoy is found wherever Envoy would read it, and nothing else is taken for one.
func TestRecent(t *testing.T) {
	for text, want := range map[string]string{
		"":                          "",
		"SPAN_ID %%SPAN_ID%%":       "",
		"%PROTOCOL% %REQ(SPAN_ID)%": "",
		"%PROTOCOL% %SPAN_ID%":      "SPAN_ID",
		`%COALESCE({"operators": ["PROTOCOL", "SPAN_ID"]})%`:                              "COALESCE",
		`%COALESCE({"operators": [{"command": "QUERY_PARAMS", "param": "ORIG"}]})%`:       "COALESCE",
		`%COALESCE({"operators": ["\u0053PAN_ID"]})%`:                                     "COALESCE",
		`%COALESCE({"operators": ["PROTOCOL", {"command": "REQ", "param": "SPAN_ID"}]})%`: "",
	} {
		if got := Recent(text); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
