package input

import (
	"errors"

	"github.com/istiod-lite/istiod-lite/api/kinds"
	"github.com/istiod-lite/istiod-lite/cmd/terminal"
	"github.com/istiod-lite/istiod-lite/pilot/progress"
)

// ObjectName returns the name by which servers are asked for the object KIND/NAME.NAMESPACE. If several groups have the
// kind, it is the text itself, because a server knows which of them has the object.
func ObjectName(text string) (string, error) {
	if terminal.Plain(text) != text {
		return text, errors.New("no object has such a name: write KIND/NAME.NAMESPACE, without invisible characters")
	}
	keys, err := kinds.Parse(text)
	if err != nil || len(keys) > 1 {
		return text, err
	}
	return progress.Name(keys[0]), nil
}
