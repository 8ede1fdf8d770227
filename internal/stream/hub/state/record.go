// SPDX-License-Identifier: Apache-2.0

package state

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"slices"
	"syscall"

	"go.etcd.io/bbolt"

	"github.com/tombolo-io/tombolo/internal/access/trust"
	"github.com/tombolo-io/tombolo/internal/base/fault"
)

// A record is the CRC-32C of its bucket, key and JSON, then the JSON: the
// library's checksum covers only its own head, and a flipped bit must not become
// another CA or a certificate that was never revoked.
const sumLength = 4

func seal(bucket, key string, data []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, sum(bucket, key, data)), data...)
}

func sum(bucket, key string, data []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	return crc32.Update(crc32.Checksum([]byte(bucket+"\x00"+key+"\x00"), table), table, data)
}

func unseal(bucket, key string, record []byte) ([]byte, error) {
	if len(record) > sumLength && binary.BigEndian.Uint32(record) == sum(bucket, key, record[sumLength:]) {
		return record[sumLength:], nil
	}
	return nil, fmt.Errorf("the record %s/%q is damaged", bucket, key)
}

func put(tx *bbolt.Tx, bucket, key string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return tx.Bucket([]byte(bucket)).Put([]byte(key), seal(bucket, key, data))
}

func get(tx *bbolt.Tx, bucket, key string, into any) (found bool, err error) {
	record := tx.Bucket([]byte(bucket)).Get([]byte(key))
	if record == nil {
		return false, nil
	}
	data, err := unseal(bucket, key, record)
	if err != nil {
		return false, err
	}
	return true, json.Unmarshal(data, into)
}

func each[T any](tx *bbolt.Tx, bucket string, fn func(key string, v T)) error {
	return tx.Bucket([]byte(bucket)).ForEach(func(k, record []byte) error {
		data, err := unseal(bucket, string(k), record)
		if err != nil {
			return err
		}
		var v T
		if err := json.Unmarshal(data, &v); err != nil {
			return err
		}
		fn(string(k), v)
		return nil
	})
}

// drop deletes the records of a bucket that are old.
func drop[T any](tx *bbolt.Tx, bucket string, old func(T) bool) error {
	var gone []string
	err := each(tx, bucket, func(key string, v T) {
		if old(v) {
			gone = append(gone, key)
		}
	})
	if err != nil {
		return err
	}
	for _, key := range gone {
		if err := tx.Bucket([]byte(bucket)).Delete([]byte(key)); err != nil {
			return err
		}
	}
	return nil
}

func list[T any](s *Store, bucket string) ([]T, error) {
	var out []T
	err := s.db.View(func(tx *bbolt.Tx) error {
		return each(tx, bucket, func(_ string, v T) { out = append(out, v) })
	})
	return out, wrap(err)
}

// checkRecords reads every record of a state once.
func checkRecords(tx *bbolt.Tx) error {
	later := []string{bucketNodes, bucketRemoved, bucketWireGuard} // earlier releases have none
	for _, name := range buckets() {
		if tx.Bucket([]byte(name)) == nil && !slices.Contains(later, name) {
			return fmt.Errorf("the bucket %s is missing", name)
		}
	}
	ignore := func(string, json.RawMessage) {}
	for _, name := range buckets() {
		if tx.Bucket([]byte(name)) == nil {
			continue
		}
		if err := each(tx, name, ignore); err != nil {
			return err
		}
	}
	_, err := storedAuthority(tx)
	return err
}

// storedAuthority is nil without error if there is no CA yet.
func storedAuthority(tx *bbolt.Tx) (*trust.Authority, error) {
	var cert, key []byte
	hasCert, err1 := get(tx, bucketMeta, keyCACert, &cert)
	hasKey, err2 := get(tx, bucketMeta, keyCAKey, &key)
	if err := errors.Join(err1, err2); err != nil || !hasCert && !hasKey {
		return nil, err
	}
	ca, err := trust.ParseAuthority(cert, key)
	if err != nil {
		return nil, fault.New(fault.CodeStateCorrupt, "the stored CA cannot be used").Because(err)
	}
	return ca, nil
}

// wrap codes the errors of a full disk and of the library; faults pass.
func wrap(err error) error {
	var f *fault.Fault
	if err == nil || errors.As(err, &f) {
		return err
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return fault.New(fault.CodeStateAccess, "the state cannot be written").Because(err).
			Hint("free space on the disk of the state directory")
	}
	return fault.New(fault.CodeStateCorrupt, "the state cannot be used").Because(err)
}
