package crd

import (
	"encoding/json"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// managerOf returns the field manager of the newest write to an object that is not to its status, and its time. data is
// the object as JSON.
func managerOf(data []byte) (manager string, at time.Time) {
	var object struct {
		Metadata struct {
			ManagedFields []struct {
				Manager     string    `json:"manager"`
				Subresource string    `json:"subresource"`
				Time        time.Time `json:"time"`
			} `json:"managedFields"`
		} `json:"metadata"`
	}
	if json.Unmarshal(data, &object) != nil {
		return "", time.Time{}
	}
	for _, m := range object.Metadata.ManagedFields {
		if m.Subresource == "" && !m.Time.Before(at) {
			manager, at = m.Manager, m.Time
		}
	}
	return manager, at
}

// Field numbers in the API's generated.proto.
const (
	managedFields      = 17 // of ObjectMeta
	managerName        = 1  // of ManagedFieldsEntry
	managerTime        = 4
	managerSubresource = 8
	timeSeconds        = 1 // of Time
)

// managerIn is managerOf for an object in protobuf.
func managerIn(object []byte) (manager string, at time.Time) {
	_ = eachField(fieldOf(object, 1), func(number protowire.Number, _, entry []byte) error {
		if number != managedFields || len(fieldOf(entry, managerSubresource)) > 0 {
			return nil
		}
		seconds, _ := varintOf(fieldOf(entry, managerTime), timeSeconds)
		if t := time.Unix(int64(seconds), 0).UTC(); !t.Before(at) {
			manager, at = string(fieldOf(entry, managerName)), t
		}
		return nil
	})
	return manager, at
}
