// Types and documents for every src/**/*.graphql, checked against the server's own schema.
import { readFile, readdir, writeFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { codegen } from '@graphql-codegen/core';
import * as typedDocumentNode from '@graphql-codegen/typed-document-node';
import * as operations from '@graphql-codegen/typescript-operations';
import { buildSchema, parse, validate } from 'graphql';

const HERE = fileURLToPath(new URL('..', import.meta.url));
const SCHEMA = join(HERE, '../../schema/schema.graphql');
const GENERATED = join(HERE, 'src/graphql/generated.ts');

const CONFIG = {
  useTypeImports: true,
  enumsAsTypes: true,
  nonOptionalTypename: true,
  onlyOperationTypes: true,
  strictScalars: true,
  dedupeFragments: true,
  defaultScalarType: 'unknown',
  scalars: {
    ID: 'string',
    Int64: 'string', // 64 bits do not fit a number
    Millis: 'number',
    JSON: 'unknown',
    JSONObject: 'Record<string, unknown>',
  },
};

async function documents() {
  const names = await readdir(join(HERE, 'src'), { recursive: true });
  const found = names.filter((name) => name.endsWith('.graphql')).sort();
  return Promise.all(
    found.map(async (name) => {
      const location = join(HERE, 'src', name);
      return { location, document: parse(await readFile(location, 'utf8')) };
    }),
  );
}

const text = await readFile(SCHEMA, 'utf8');
const read = await documents();
const schema = buildSchema(text);
for (const { location, document } of read) {
  // Each file stands by itself: what one document uses is in it.
  for (const error of validate(schema, document)) {
    console.error(`${relative(HERE, location)}: ${error.message}`);
    process.exitCode = 1;
  }
}
if (!process.exitCode) {
  const written = await codegen({
    filename: GENERATED,
    schema: parse(text),
    documents: read,
    config: CONFIG,
    plugins: [{ operations: {} }, { typedDocumentNode: {} }],
    pluginMap: { operations, typedDocumentNode },
  });
  await writeFile(GENERATED, `// Written by scripts/codegen.mjs. Do not edit.\n${written}\n`);
}
