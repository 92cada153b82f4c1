package dlpack

// The layout of the standard's structs on 64-bit machines, in bytes, for Go code that reads or builds
// them. A test compares them with dlpack.h and with usmb_dlpack.h.
const (
	MaxNDim = 64 // the number of dimensions that this package accepts; the standard has no limit

	// DLTensor
	TensorSize             = 48
	TensorDataOffset       = 0
	TensorDeviceTypeOffset = 8
	TensorDeviceIDOffset   = 12
	TensorNDimOffset       = 16
	TensorDTypeOffset      = 20
	TensorShapeOffset      = 24
	TensorStridesOffset    = 32
	TensorByteOffsetOffset = 40

	// DLManagedTensor (legacy)
	ManagedSize          = 64
	ManagedTensorOffset  = 0
	ManagedCtxOffset     = 48
	ManagedDeleterOffset = 56

	// DLManagedTensorVersioned
	VersionedSize          = 80
	VersionedMajorOffset   = 0
	VersionedMinorOffset   = 4
	VersionedCtxOffset     = 8
	VersionedDeleterOffset = 16
	VersionedFlagsOffset   = 24
	VersionedTensorOffset  = 32

	// DLPackExchangeAPI
	ExchangeSize             = 56
	ExchangeMajorOffset      = 0
	ExchangeMinorOffset      = 4
	ExchangePrevOffset       = 8
	ExchangeAllocatorOffset  = 16
	ExchangeFromPyOffset     = 24
	ExchangeToPyOffset       = 32
	ExchangeBorrowOffset     = 40
	ExchangeWorkStreamOffset = 48
)

// Names of the Python capsules with a tensor or the exchange API. A consumer that takes over a tensor
// renames its capsule to the used name.
const (
	CapsuleLegacy        = "dltensor"
	CapsuleLegacyUsed    = "used_dltensor"
	CapsuleVersioned     = "dltensor_versioned"
	CapsuleVersionedUsed = "used_dltensor_versioned"
	CapsuleExchangeAPI   = "dlpack_exchange_api"
)
