package envoy

import (
	"fmt"

	"google.golang.org/protobuf/proto"
)

// Decode decodes resources of one type and returns their messages in the same order. An error names the resource that
// could not be decoded.
func Decode[T any, M interface {
	*T
	proto.Message
}](list []*Resource) ([]M, error) {
	out := make([]M, 0, len(list))
	for _, r := range list {
		m := M(new(T))
		if err := proto.Unmarshal(r.Value(), m); err != nil {
			return nil, fmt.Errorf("read %s: %w", r.Name, err)
		}
		out = append(out, m)
	}
	return out, nil
}
