# decode_sm80's compiled kernels: one small translation unit for each row of kConfigs (config.hpp) and type of Q.
# instances.cpp makes the list of them a table.
set(decode80_configs 16)
set(decode80_generated ${CMAKE_CURRENT_BINARY_DIR}/generated/decode_sm80/split_kv)
set(decode80_sources "")
set(decode80_declarations "")
set(decode80_entries "")
set(type_Fp16 f16)
set(type_Bf16 bf16)
math(EXPR decode80_last_config "${decode80_configs} - 1")
foreach(INSTANCE_ELEMENT Fp16 Bf16)
  foreach(INSTANCE_CONFIG RANGE ${decode80_last_config})
    string(TOLOWER "decode80_${INSTANCE_ELEMENT}_config${INSTANCE_CONFIG}" INSTANCE_NAME)
    set(source ${decode80_generated}/${INSTANCE_NAME}.cu)
    configure_file(decode_sm80/split_kv/instance.cu.in ${source} @ONLY)
    list(APPEND decode80_sources ${source})
    string(APPEND decode80_declarations "InstanceEntry ${INSTANCE_NAME}();\n")
    string(APPEND decode80_entries
      "      {{InputType::${type_${INSTANCE_ELEMENT}}, ${INSTANCE_CONFIG}}, ${INSTANCE_NAME}()},\n")
  endforeach()
endforeach()
configure_file(decode_sm80/split_kv/instance_list.hpp.in ${decode80_generated}/instance_list.hpp @ONLY)

flashcore_cuda_sources(decode_sm80 SOURCES ${decode80_sources} decode_sm80/split_kv/combine.cu)
target_sources(flashcore_objects PRIVATE decode_sm80/split_kv/instances.cpp)
set_source_files_properties(decode_sm80/split_kv/instances.cpp TARGET_DIRECTORY flashcore_objects
  PROPERTIES INCLUDE_DIRECTORIES ${decode80_generated})
