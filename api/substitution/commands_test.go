package substitution

import (
	"slices"
	"testing"
)

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
		if older := Older(text); Recent(older) != "" || want == "" && older != text {
			t.Errorf("%s for an older Envoy: %s", text, older)
		}
	}
}

// TestOlder: for an older Envoy, the commands that it may not have are replaced, and nothing else.
func TestOlder(t *testing.T) {
	for text, want := range map[string]string{
		"":                "",
		"50%% %PROTOCOL%": "50%% %PROTOCOL%",
		"%SPAN_ID%":       "-",
		"a %SPAN_ID%, %PROTOCOL%, %QUERY_PARAMS(ORIG):7%%LISTENER_NAME% 50%%": "a -, %PROTOCOL%, -- 50%%",
		`%COALESCE({"operators": ["PROTOCOL", "SPAN_ID"]})% b`:                "- b",
	} {
		if got := Older(text); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// TestParts: a text consists of literals and commands, with their arguments and lengths.
func TestParts(t *testing.T) {
	list, ok := Parts("100%% %REQ(A?:B):12%[%PROTOCOL%]")
	want := []Part{{Literal: "100% "}, {Command: "REQ", Argument: "A?:B", Length: 12}, {Literal: "["}, {Command: "PROTOCOL"}, {Literal: "]"}}
	if !ok || !slices.Equal(list, want) {
		t.Errorf("%+v, %v", list, ok)
	}
	if _, ok := Parts("5% of"); ok {
		t.Error("a percent sign that begins no command is accepted")
	}
}
