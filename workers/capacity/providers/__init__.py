"""What a provider says it has: one module a kind of account, all behind `protocol.Provider`. Nothing here
decides or writes.
"""
