package names

import "testing"

func TestFollowAliases(t *testing.T) {
	aliases := map[string]string{"a": "b", "b": "c", "x": "y", "y": "x"}
	for host, want := range map[string]string{"a": "c", "c": "c", "x": ""} {
		if got := FollowAliases(host, func(host string) string { return aliases[host] }); got != want {
			t.Errorf("%s is an alias of %q, want %q", host, got, want)
		}
	}
}
