package main

import (
	"hash/maphash"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of DiscoveryRequest and DeltaDiscoveryRequest.
const (
	sotwNames = 3
	sotwType  = 4
	deltaType = 2
	deltaAdds = 3
	deltaGone = 4
)

// read decodes a request and reports whether it asks for something. A request that repeats the last names of its type
// does not.
func (s *stream) read(request []byte) (typeURL string, names, gone []string, asks bool) {
	var added, left [][]byte
	var sum maphash.Hash
	sum.SetSeed(s.seed)
	for len(request) > 0 {
		number, wireType, n := protowire.ConsumeTag(request)
		m := protowire.ConsumeFieldValue(number, wireType, request[max(n, 0):])
		if n < 0 || m < 0 {
			return "", nil, nil, false
		}
		field := request[:n+m]
		request = request[n+m:]
		if wireType != protowire.BytesType {
			continue
		}
		value, _ := protowire.ConsumeBytes(field[n:])
		switch {
		case s.sotw && number == sotwType, !s.sotw && number == deltaType:
			typeURL = string(value)
		case s.sotw && number == sotwNames, !s.sotw && number == deltaAdds:
			added = append(added, value)
			_, _ = sum.Write(field)
		case !s.sotw && number == deltaGone:
			left = append(left, value)
		}
	}
	named, again := s.named[typeURL]
	now := sum.Sum64()
	if again && (s.sotw && now == named || !s.sotw && len(added)+len(left) == 0) {
		return typeURL, nil, nil, false
	}
	s.named[typeURL] = now
	return typeURL, texts(added), texts(left), true
}

func texts(all [][]byte) (out []string) {
	for _, b := range all {
		out = append(out, string(b))
	}
	return out
}
