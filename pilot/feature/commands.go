package feature

import (
	"github.com/istiod-lite/istiod-lite/api/node"
	"github.com/istiod-lite/istiod-lite/api/substitution"
)

// Commands returns a text in which a proxy replaces commands such as %REQ(x-name)%. It replaces commands that the proxy
// does not have by "-", because Envoy rejects all routes, or the whole listener, with an unknown command.
func Commands(c node.Capabilities, text string) string {
	if c.Has(node.RecentCommands) {
		return text
	}
	return substitution.Older(text)
}
